"""The chat page in a browser: talking, changing one's mind, keeping, keys, looks, and that nothing a model writes can run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.waiting import wait_until
from tests.web.browsing import chromium, opened
from tests.web.sites import Refuse, Say, Site, research, running

pytestmark = [pytest.mark.http, pytest.mark.slow]

ANSWER = """Here is a **plan** with `code` and a [link](https://example.com/x).

## Steps
1. First
   - nested

```python
def double(n: int) -> int:
    return 2 * n  # twice
```

| model | tok/s |
|---|---:|
| one | 42 |
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def test_a_question_is_answered_as_markdown_with_its_figures(browser: Any):
    with (
        running(Site([Say([{"reasoning": "Hm, let me see."}, *pieces(ANSWER)])])) as site,
        opened(browser, site.url) as tab,
    ):
        tab.page.get_by_text("qwen3-4b · 32,768 tokens").wait_for()
        tab.ask("How?")
        answer = tab.answer()
        assert answer.locator("strong").inner_text() == "plan"
        assert answer.get_by_role("heading", name="Steps").is_visible()
        assert answer.locator("ol > li ul > li").inner_text() == "nested"
        assert answer.locator("td").all_inner_texts() == ["one", "42"]
        assert "return 2 * n" in answer.locator("pre code").inner_text()
        assert answer.locator("pre code span").count() > 3, "code has its colours"
        link = answer.get_by_role("link", name="link")
        assert link.get_attribute("href") == "https://example.com/x" and "noopener" in link.get_attribute(
            "rel"
        )
        foot = answer.locator(".message-foot").inner_text()
        assert (
            "312 tokens" in foot
            and "tok/s" in foot
            and "first token" in foot
            and "1,024 of 1,250 cached" in foot
        )
        thought = answer.locator("details").first
        assert not thought.get_attribute("open") and "let me see" not in thought.inner_text()
        thought.locator("summary").click()
        assert "let me see" in thought.inner_text()
        sent = site.asked[0]
        assert sent["messages"] == [{"role": "user", "content": "How?"}] and sent["stream"]
        assert sent["chat_template_kwargs"] == {"enable_thinking": False}
        tab.shot("light")


def test_code_is_copied(browser: Any):
    with (
        running(Site([Say([ANSWER])])) as site,
        opened(browser, site.url, permissions=["clipboard-read", "clipboard-write"]) as tab,
    ):
        tab.ask("How?")
        tab.answer().get_by_label("Copy code").click()
        copied = "navigator.clipboard.readText()"
        assert tab.page.evaluate(copied) == "def double(n: int) -> int:\n    return 2 * n  # twice"
        tab.answer().get_by_label("Copy this answer").click()
        wait_until(lambda: tab.page.evaluate(copied) == ANSWER.strip() or tab.page.evaluate(copied) == ANSWER)


def test_the_next_question_brings_the_history(browser: Any):
    with running(Site([Say(["One."]), Say(["Two."])])) as site, opened(browser, site.url) as tab:
        tab.ask("First?")
        tab.answer()
        tab.ask("Second?")
        tab.answer(1)
        assert [(one["role"], one["content"]) for one in site.asked[1]["messages"]] == [
            ("user", "First?"),
            ("assistant", "One."),
            ("user", "Second?"),
        ]


def test_stop_keeps_what_was_written_and_lets_the_model_go(browser: Any):
    with running(Site([Say(["Some words"], hold=True)])) as site, opened(browser, site.url) as tab:
        tab.ask("Go on for ever.")
        tab.page.get_by_text("Some words").wait_for()
        tab.button("Stop").click()
        assert "Some words" in tab.answer().inner_text()
        wait_until(lambda: site.num_left == 1)
        tab.ask("Again.")
        tab.page.locator("article[aria-label=Assistant]").nth(1).wait_for()
        tab.page.keyboard.press("Escape")
        wait_until(lambda: site.num_left == 2)


def test_answering_again_and_editing_keep_what_was_there(browser: Any):
    with (
        running(Site([Say(["One."]), Say(["Two."]), Say(["Three."])])) as site,
        opened(browser, site.url) as tab,
    ):
        tab.ask("Ask?")
        tab.answer().get_by_label("Answer again").click()
        tab.page.get_by_text("Two.").wait_for()
        assert site.asked[1]["messages"] == site.asked[0]["messages"]
        tab.answer().get_by_label("Earlier version").click()
        tab.page.get_by_text("One.").wait_for()
        tab.page.get_by_label("Edit this message").click(force=True)
        field = tab.page.get_by_label("Edit your message")
        field.fill("Ask better?")
        field.press("Enter")
        tab.page.get_by_text("Three.").wait_for()
        assert site.asked[2]["messages"] == [{"role": "user", "content": "Ask better?"}]
        tab.page.locator("article[aria-label=You]").get_by_label("Earlier version").click()
        tab.page.get_by_text("One.").wait_for()


def test_conversations_are_kept_found_renamed_and_deleted(browser: Any):
    with running(Site([Say(["Kept."])])) as site, opened(browser, site.url) as tab:
        tab.ask("Remember me")
        tab.answer()
        tab.reload()
        tab.page.get_by_text("Kept.").wait_for()
        tab.button("Rename Remember me").click()
        name = tab.page.get_by_label("Name of the conversation")
        name.fill("My talk")
        name.press("Enter")
        tab.page.locator("#new-chat").click()
        assert tab.page.get_by_text("What is on your mind?").is_visible()
        tab.page.locator("#chats").get_by_text("My talk").click()
        tab.page.get_by_text("Kept.").wait_for()
        tab.button("Delete My talk").click()
        assert tab.page.locator("#chats").get_by_text("My talk").count() == 0
        tab.button("Undo").click()
        tab.page.locator("#chats").get_by_text("My talk").wait_for()


@pytest.mark.parametrize(("kind", "ending"), [("Markdown", ".md"), ("JSON", ".json")])
def test_a_conversation_is_exported(browser: Any, kind: str, ending: str):
    with running(Site([Say([ANSWER])])) as site, opened(browser, site.url) as tab:
        tab.ask("Export this")
        tab.answer()
        tab.button("Export this conversation").click()
        with tab.page.expect_download() as download:
            tab.page.get_by_role("menuitem", name=kind).click()
        assert download.value.suggested_filename.endswith(ending)
        text = download.value.path().read_text()
        assert "Export this" in text and "return 2 * n" in text
        if kind == "JSON":
            json.loads(text)


def test_the_switches_say_what_is_sent(browser: Any):
    site_ = Site([Say(["Ok [1]."])], search=True)
    found = [
        {"n": 1, "title": "A hit", "url": "https://hit.example/", "domain": "hit.example", "cited": True}
    ]
    site_.answers = [
        Say(
            [
                research(type="search", query="q", results=found),
                research(type="read", n=1, title="A hit", url="https://hit.example/", domain="hit.example"),
                "Ok [1].",
                research(type="sources", sources=found),
            ]
        )
    ]
    with running(site_) as site, opened(browser, site.url) as tab:
        tab.button("Think").click()
        tab.button("Web").click()
        assert tab.button("Think").get_attribute("aria-pressed") == "true"
        tab.ask("Search")
        answer = tab.answer()
        assert site.paths[-1].endswith("/v1/web/chat/completions")
        assert site.asked[-1]["chat_template_kwargs"] == {"enable_thinking": True}
        assert answer.get_by_label("Source 1: A hit").get_attribute("href") == "https://hit.example/"
        assert "Searched for" in answer.get_by_label("Web research").inner_text()
        assert "hit.example" in answer.get_by_label("Sources").inner_text()
        tab.reload()
        assert tab.button("Web").get_attribute("aria-pressed") == "true", "kept"
        tab.shot("web")


def test_without_a_search_there_is_no_switch(browser: Any):
    with running(Site()) as site, opened(browser, site.url) as tab:
        assert not tab.page.locator("#web").is_visible()


def test_calls_are_shown(browser: Any):
    call = {"index": 0, "id": "c", "function": {"name": "write_file", "arguments": '{"path": "a.py"}'}}
    with (
        running(Site([Say([{"tool_calls": [call]}], finish="tool_calls")])) as site,
        opened(browser, site.url) as tab,
    ):
        tab.ask("Do it")
        shown = tab.answer().locator("details.call")
        shown.locator("summary").click()
        assert "write_file" in shown.inner_text() and '"a.py"' in shown.inner_text()


HOSTILE = [
    '<script>window.pwned = 1</script><img src=x onerror="window.pwned=1"><svg onload=window.pwned=1>',
    "[click](javascript:window.pwned=1) [data](data:text/html,<script>window.pwned=1</script>) [v](vbscript:x)",
    "![pixel](https://outside.example/p.png?secret=1) <https://outside.example/a>",
    '```html"><script>window.pwned=1</script>\n<b>bold?</b>\n```',
    "<iframe src=https://outside.example></iframe><style>body{display:none}</style><base href=//evil.example>",
    "| <img src=x onerror=window.pwned=1> | b |\n|---|---|\n| [x](JaVaScRiPt:alert(1)) | <a href=javascript:1>y</a> |",
    '[a](https://ok.example" onmouseover="window.pwned=1)\n\n> <script>window.pwned=1</script>',
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_what_a_model_writes_never_runs(browser: Any, number: int):
    with running(Site([Say(pieces(HOSTILE[number], 3))])) as site, opened(browser, site.url) as tab:
        tab.ask("Be evil")
        answer = tab.answer()
        for link in answer.get_by_role("link").all():
            assert link.get_attribute("href").startswith(("https://", "http://", "mailto:"))
        assert answer.locator("script, iframe, style, base, img, svg[onload]").count() == 0
        assert tab.page.evaluate("window.pwned") is None
        assert tab.page.locator("body").is_visible()


def test_a_title_and_a_thought_never_run_either(browser: Any):
    evil = '<img src=x onerror="window.pwned=1">'
    found = [{"n": 1, "title": evil, "url": "javascript:window.pwned=1", "domain": evil, "cited": True}]
    answer = Say(
        [
            {"reasoning": evil},
            research(type="search", query=evil, results=found),
            f"{evil} [1]",
            research(type="sources", sources=found),
        ]
    )
    models = [{"id": evil, "max_model_len": 1}]
    with running(Site([answer], models=models, search=True)) as site, opened(browser, site.url) as tab:
        tab.ask(evil)
        tab.answer()
        assert tab.page.locator("#scroll img[src=x], #side img[src=x], header img[src=x]").count() == 0
        assert tab.page.get_by_role("link").and_(tab.page.locator("[href^=javascript]")).count() == 0
        assert tab.page.evaluate("window.pwned") is None


def test_a_key_is_asked_for_and_kept(browser: Any):
    with running(Site(key="sk-1")) as site, opened(browser, site.url) as tab:
        dialog = tab.page.get_by_role("dialog")
        dialog.get_by_role("textbox").or_(dialog.locator("input")).first.fill("sk-1")
        tab.page.keyboard.press("Enter")
        dialog.wait_for(state="hidden")
        tab.ask("Hello")
        assert "Hello there." in tab.answer().inner_text()
        tab.shot("keys")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Refuse(429, "Too many requests", headers={"Retry-After": "7"}), "Try again in 7 seconds"),
        (Refuse(503, "Full"), "The server is busy"),
        (
            Refuse(400, "maximum context length is 10 tokens.", "context_length_exceeded"),
            "too long for the model",
        ),
        (Say(["Half an"], cut=True), "broke off"),
        (Say([]), "without writing anything"),
    ],
)
def test_errors_are_told_in_words_and_can_be_tried_again(browser: Any, answer: Any, said: str):
    with running(Site([answer, Say(["Better."])])) as site, opened(browser, site.url) as tab:
        tab.ask("Hello")
        assert said in tab.answer().inner_text()
        tab.button("Try again").click()
        tab.page.get_by_text("Better.").wait_for()


def test_everything_goes_by_keyboard(browser: Any):
    with running(Site([Say(["One."])])) as site, opened(browser, site.url) as tab:
        keyboard = tab.page.keyboard
        keyboard.type("line one")
        keyboard.press("Shift+Enter")
        keyboard.type("line two")
        keyboard.press("Enter")
        tab.answer()
        assert site.asked[0]["messages"][0]["content"] == "line one\nline two"
        keyboard.press("Control+Shift+O")
        tab.page.get_by_text("What is on your mind?").wait_for()
        keyboard.press("Control+/")
        tab.page.get_by_role("dialog").wait_for()
        keyboard.press("Escape")
        tab.page.get_by_role("dialog").wait_for(state="hidden")
        keyboard.press("Control+Shift+K")
        assert tab.page.evaluate("document.activeElement.id") == "filter"


UNNAMED = """[...document.querySelectorAll("button, a[href], input, textarea, select, [role=button], summary")]
  .filter((node) => node.checkVisibility())
  .filter((node) => !(node.getAttribute("aria-label") || node.innerText?.trim() || node.labels?.length || node.title))
  .map((node) => node.outerHTML.slice(0, 120))"""
CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if ((colour[3] ?? 1) > 0.95) return colour;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const bad = [];
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest(":disabled, .unseen, .skip, noscript")) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(parse(style.color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) bad.push(`${node.className || node.tagName}: ${ratio.toFixed(2)} ${walker.currentNode.data.slice(0, 30)}`);
  }
  return bad;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_control_has_a_name_and_every_text_contrast(browser: Any, scheme: str):
    with (
        running(Site([Say([{"reasoning": "Thought."}, ANSWER])], search=True)) as site,
        opened(browser, site.url, color_scheme=scheme) as tab,
    ):
        tab.ask("How?")
        tab.answer()
        assert tab.page.evaluate(UNNAMED) == []
        assert tab.page.evaluate(CONTRAST) == []
        tab.button("Settings").click()
        assert tab.page.evaluate(UNNAMED) == []
        assert tab.page.evaluate(CONTRAST) == []
        tab.shot(f"settings-{scheme}")


def test_dark_can_be_chosen_and_stays(browser: Any):
    with running(Site([Say([ANSWER])])) as site, opened(browser, site.url, color_scheme="light") as tab:
        ground = "getComputedStyle(document.body).backgroundColor"
        before = tab.page.evaluate(ground)
        tab.button("Switch to dark").click()
        assert tab.page.evaluate(ground) != before
        tab.ask("How?")
        tab.answer()
        tab.shot("dark")
        tab.reload()
        assert tab.page.evaluate(ground) != before
        tab.button("Switch to light").wait_for()


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_scrolls_one_way(browser: Any, width: int):
    wide = ANSWER + "\n```\n" + "x" * 300 + "\n```\n" + "word" * 60
    with (
        running(Site([Say([wide])])) as site,
        opened(browser, site.url, viewport={"width": width, "height": 700}, has_touch=True) as tab,
    ):
        tab.ask("How?")
        tab.answer()
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.page.get_by_label("Message", exact=True).is_visible()
        tab.shot(f"phone-{width}")
        tab.button("Show the list of conversations").click()
        tab.page.locator("#chats").get_by_text("How?").wait_for()
        small = "[...document.querySelectorAll('button')].filter((b) => b.checkVisibility() && b.getBoundingClientRect().height < 24).length"
        assert tab.page.evaluate(small) == 0


def test_the_picker_shows_models_and_how_they_are(browser: Any):
    models = [
        {"id": "here", "max_model_len": 4096},
        {"id": "asleep", "max_model_len": 8192, "edgewise": {"loaded": False, "upstreams": ["a"]}},
        {"id": "vectors", "capabilities": {"chat": False}},
    ]
    with running(Site(models=models)) as site, opened(browser, site.url) as tab:
        tab.page.locator("#model").click()
        menu = tab.page.get_by_role("menu")
        assert (
            "here" in menu.inner_text()
            and "asleep" in menu.inner_text()
            and "vectors" not in menu.inner_text()
        )
        tab.shot("picker")
        menu.get_by_text("asleep").click()
        tab.ask("Hello")
        tab.answer()
        assert site.asked[-1]["model"] == "asleep"
