"""A question, its answer as it is written, its figures, what a second question brings along."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.waiting import wait_until
from tests.web.browsing import opened
from tests.web.sites import ANSWER, Say, Site, pieces, running

pytestmark = [pytest.mark.http, pytest.mark.slow]


def test_a_question_is_answered_as_markdown_with_its_figures(browser: Any):
    with (
        running(Site([Say([{"reasoning": "Hm, let me see."}, *pieces(ANSWER)], pause_s=0.01)])) as site,
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
