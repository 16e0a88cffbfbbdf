"""One browser for all of these tests. It goes when they are over: an event loop runs in it, and asynchronous tests want their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.browsing import chromium


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser
