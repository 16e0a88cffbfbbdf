"""A headless Chromium with the page open."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SHOTS = Path(__file__).parents[2] / "build" / "screenshots"
PATIENCE_MS = 10_000


@dataclass
class Tab:
    """An open page. `trouble`: errors of its code, and what its policy forbade; `outside`: addresses asked for beyond the server."""

    page: Any
    url: str
    trouble: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def ask(self, text: str) -> None:
        self.page.get_by_label("Message", exact=True).fill(text)
        self.button("Send").click()

    def answer(self, number: int = -1) -> Any:
        """One of the answers shown, once it is whole."""
        self.page.locator("article[aria-label=Assistant]").nth(number).wait_for()
        self.page.get_by_label("Send", exact=True).wait_for()
        return self.page.locator("article[aria-label=Assistant]").nth(number)

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name)

    def shot(self, name: str) -> None:
        """Kept for people to look at."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(SHOTS / f"{name}.png"))

    def reload(self) -> None:
        self.page.reload()
        self.page.locator("#send svg").wait_for()


Opener = Callable[..., contextlib.AbstractContextManager[Tab]]


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser; skips where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("browser tests need Chromium (Debian: apt install chromium)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextlib.contextmanager
def opened(browser: Any, url: str, **context: Any) -> Iterator[Tab]:
    """The page at an address, in a profile of its own. At the end nothing may have gone wrong in it, and nothing been asked outside."""
    own = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **context})
    page = own.new_page()
    page.set_default_timeout(PATIENCE_MS)
    tab = Tab(page, url)
    page.on("pageerror", lambda error: tab.trouble.append(str(error)))
    page.on("console", lambda said: tab.trouble.append(said.text) if _is_trouble(said) else None)
    page.on("request", lambda request: None if _is_own(request.url, url) else tab.outside.append(request.url))
    page.goto(url)
    page.locator("#send svg").wait_for()  # its code has begun
    try:
        yield tab
    finally:
        own.close()
    assert not tab.trouble and not tab.outside, (tab.trouble, tab.outside)


def _is_trouble(said: Any) -> bool:
    """Refused requests are the tests' own doing."""
    return said.type == "error" and "Failed to load resource" not in said.text


def _is_own(asked: str, url: str) -> bool:
    return asked.startswith((url, "data:", "blob:"))
