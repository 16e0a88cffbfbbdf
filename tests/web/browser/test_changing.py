"""Stopping an answer, asking for another, editing a question, going between versions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.waiting import wait_until
from tests.web.browsing import opened
from tests.web.sites import Say, Site, running

pytestmark = [pytest.mark.http, pytest.mark.slow]


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
