"""Keys asked for, refusals, answers that break off."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.web.browsing import opened
from tests.web.sites import Refuse, Say, Site, running

pytestmark = [pytest.mark.http, pytest.mark.slow]


def test_a_key_is_asked_for_and_kept(browser: Any):
    with running(Site(key="sk-1")) as site, opened(browser, site.url) as tab:
        dialog = tab.page.get_by_role("dialog")
        dialog.get_by_role("textbox").or_(dialog.locator("input")).first.fill("sk-1")
        tab.page.keyboard.press("Enter")
        dialog.wait_for(state="hidden")
        tab.ask("Hello")
        assert "Hello there." in tab.answer().inner_text()
        tab.shot("keys")


FAILURES = [
    (Refuse(429, "Too many requests", headers={"Retry-After": "7"}), "Try again in 7 seconds"),
    (Refuse(503, "Full"), "The server is busy"),
    (Refuse(502, "<html>"), "does not answer"),
    (
        Refuse(400, "maximum context length is 10 tokens.", "context_length_exceeded"),
        "too long for the model",
    ),
    (Say(["Half an"], cut=True), "broke off"),
    (Say([{"choices": [], "error": {"message": "The engine fell over.", "code": None}}]), "fell over"),
    (Say([]), "without writing anything"),
]


def test_errors_are_told_in_words_and_can_be_tried_again(browser: Any):
    answers = [answer for answer, _ in FAILURES] + [Say(["Better."])]
    with running(Site(answers)) as site, opened(browser, site.url) as tab:
        tab.ask("Hello")
        for _, said in FAILURES:
            tab.answer().get_by_role("alert").get_by_text(said).wait_for()
            tab.button("Try again").click()
        tab.page.get_by_text("Better.").wait_for()
        assert all(asked["messages"] == [{"role": "user", "content": "Hello"}] for asked in site.asked)


def test_a_question_left_without_an_answer_goes_with_the_next(browser: Any):
    """Many templates refuse two turns of one speaker."""
    with running(Site([Refuse(503, "Full"), Say(["Yes."])])) as site, opened(browser, site.url) as tab:
        tab.ask("First?")
        tab.answer().get_by_role("alert").wait_for()
        tab.ask("Second?")
        tab.page.get_by_text("Yes.").wait_for()
        assert site.asked[1]["messages"] == [{"role": "user", "content": "First?\n\nSecond?"}]


def test_a_server_that_is_gone_is_told(browser: Any):
    with running(Site()) as site:
        gone = contextlib.ExitStack()
        tab = gone.enter_context(opened(browser, site.url))
    with gone:
        tab.ask("Hello")
        tab.answer().get_by_text("cannot be reached").wait_for()
