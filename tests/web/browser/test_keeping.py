"""Conversations are kept in the browser, and leave it as files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.web.browsing import opened
from tests.web.sites import ANSWER, Say, Site, running

pytestmark = [pytest.mark.http, pytest.mark.slow]


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


def test_a_conversation_is_exported(browser: Any):
    with running(Site([Say([ANSWER])])) as site, opened(browser, site.url) as tab:
        tab.ask("Export this")
        tab.answer()
        for kind, ending in (("Markdown", ".md"), ("JSON", ".json")):
            tab.button("Export this conversation").click()
            with tab.page.expect_download() as download:
                tab.page.get_by_role("menuitem", name=kind).click()
            assert download.value.suggested_filename.endswith(ending)
            text = download.value.path().read_text()
            assert "Export this" in text and "return 2 * n" in text
        kept = json.loads(text)
        assert [message["role"] for message in kept["messages"].values()] == ["user", "assistant"]


def test_a_name_being_typed_survives_the_end_of_an_answer(browser: Any):
    with running(Site([Say(["a ", "b ", "c"], pause_s=0.4)])) as site, opened(browser, site.url) as tab:
        tab.ask("Slow one")
        tab.page.get_by_text("a b").wait_for()
        tab.button("Rename Slow one").click()
        name = tab.page.get_by_label("Name of the conversation")
        name.fill("Half a na")
        tab.answer()
        assert name.input_value() == "Half a na"
        name.press("Enter")
        tab.page.locator("#chats").get_by_text("Half a na").wait_for()
