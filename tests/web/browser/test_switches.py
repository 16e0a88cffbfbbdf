"""The model, Think and Web: what they show and what they send."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.browsing import opened
from tests.web.sites import Say, Site, research, running

pytestmark = [pytest.mark.http, pytest.mark.slow]


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
