"""The page as the two servers have it, also below a prefix and with keys."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.browsing import opened
from tests.web.mounts import of_gateway, served

pytestmark = [pytest.mark.http, pytest.mark.slow]


@pytest.mark.parametrize("server", [served, of_gateway], ids=["serve", "gateway"])
def test_a_conversation_below_a_prefix_with_a_key(browser: Any, server: Any):
    with (
        server(root_path="/llm", api_keys=("sk-1",)) as url,
        opened(browser, f"{url}/llm/") as tab,
    ):
        dialog = tab.page.get_by_role("dialog")
        field = dialog.get_by_label("Key", exact=True)
        field.fill("wrong")
        field.press("Enter")
        dialog.get_by_text("does not know this key").wait_for()
        field.fill("sk-1")
        field.press("Enter")
        dialog.wait_for(state="hidden")
        tab.ask("Hello")
        answer = tab.answer()
        answer.get_by_text("Hello.").wait_for()
        assert "tokens" in answer.locator(".stats").inner_text()
