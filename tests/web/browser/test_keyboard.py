"""Everything by keyboard."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.browsing import opened
from tests.web.sites import Say, Site, running

pytestmark = [pytest.mark.http, pytest.mark.slow]


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


def test_the_last_question_is_edited_and_the_list_hidden_by_keyboard(browser: Any):
    with running(Site([Say(["One."]), Say(["Two."])])) as site, opened(browser, site.url) as tab:
        keyboard = tab.page.keyboard
        tab.ask("First?")
        tab.answer()
        tab.page.get_by_label("Message", exact=True).focus()
        keyboard.press("ArrowUp")
        field = tab.page.get_by_label("Edit your message")
        assert field.input_value() == "First?"
        keyboard.press("Escape")
        field.wait_for(state="hidden")
        keyboard.press("/")
        assert tab.page.evaluate("document.activeElement.id") == "prompt"
        keyboard.press("Control+Shift+S")
        tab.page.locator("#chats").wait_for(state="hidden")
        tab.page.locator("#model").focus()
        keyboard.press("Enter")
        tab.page.get_by_role("menu").wait_for()
        keyboard.press("Escape")
        tab.page.get_by_role("menu").wait_for(state="hidden")
        assert tab.page.evaluate("document.activeElement.id") == "model"
        assert len(site.asked) == 1
