"""Light, dark, a phone: names, contrast, width; pictures for people to look at."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.browsing import Tab, opened
from tests.web.sites import ANSWER, Say, Site, research, running

pytestmark = [pytest.mark.http, pytest.mark.slow]

FOUND = [
    {
        "n": 1,
        "title": "How fast small models are",
        "url": "https://bench.example/a",
        "domain": "bench.example",
        "cited": True,
    },
    {
        "n": 2,
        "title": "Memory is the limit",
        "url": "https://memory.example/b",
        "domain": "memory.example",
        "cited": True,
    },
]

UNNAMED = """[...document.querySelectorAll("button, a[href], input, textarea, select, [role=button], summary")]
  .filter((node) => node.checkVisibility({ visibilityProperty: true }))
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
    if (!walker.currentNode.data.trim() || !node.checkVisibility({ visibilityProperty: true }) || node.closest(":disabled, .unseen, .skip, noscript")) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(parse(style.color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) bad.push(`${node.className || node.tagName}: ${ratio.toFixed(2)} ${walker.currentNode.data.slice(0, 30)}`);
  }
  return bad;
}"""


RICH = Say(
    [
        {
            "reasoning": "The question is how tokens are counted. First look at what is known, then answer in short."
        },
        research(type="search", query="tokens per second of small models", results=FOUND),
        research(type="read", n=1, title=FOUND[0]["title"], url=FOUND[0]["url"], domain=FOUND[0]["domain"]),
        ANSWER,
        "\nSo a reply of 400 tokens takes about ten seconds [1]; most of the time goes to reading weights [2].\n\n> Measured, not guessed.\n",
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "c",
                    "function": {"name": "write_file", "arguments": '{"path": "notes.md"}'},
                }
            ]
        },
        research(type="sources", sources=FOUND),
    ]
)


def test_every_control_has_a_name_and_every_text_contrast(browser: Any):
    with running(Site([RICH], search=True)) as site, opened(browser, site.url) as tab:
        tab.page.set_viewport_size({"width": 1200, "height": 1150})
        tab.ask("How fast is a small model on this machine, and what limits it?")
        tab.answer().locator("details.thoughts summary").click()
        for scheme in ("light", "dark"):
            tab.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            assert_legible(tab)
            tab.shot(f"answer-{scheme}")
            tab.button("Settings").click()
            assert_legible(tab)
            tab.shot(f"settings-{scheme}")
            tab.page.keyboard.press("Escape")
        tab.page.set_viewport_size({"width": 390, "height": 844})
        tab.page.locator("#chats").wait_for(state="hidden")
        tab.page.emulate_media(color_scheme="light", reduced_motion="reduce")
        assert_legible(tab)
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
        tab.shot("answer-phone")


def test_the_accessibility_tree_names_every_control(browser: Any):
    """What assistive programs are told, computed by the browser."""
    with running(Site([RICH], search=True)) as site, opened(browser, site.url) as tab:
        tab.ask("How?")
        tab.answer()
        tree = tab.page.context.new_cdp_session(tab.page).send("Accessibility.getFullAXTree")
        nodes = [
            (node.get("role", {}).get("value"), node.get("name", {}).get("value"))
            for node in tree["nodes"]
            if not node["ignored"]
        ]
        controls = [
            (role, name)
            for role, name in nodes
            if role in ("button", "link", "textbox", "searchbox", "menuitem", "DisclosureTriangle")
        ]
        assert len(controls) > 15 and all(name for _, name in controls), controls
        assert {"main", "complementary", "banner", "navigation"} <= {role for role, _ in nodes}


def assert_legible(tab: Tab) -> None:
    assert tab.page.evaluate(UNNAMED) == []
    assert tab.page.evaluate(CONTRAST) == []


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
        tab.page.keyboard.press("Escape")
        tab.page.locator("#chats").wait_for(state="hidden")
