"""Which of an upstream's headers reach a client, and what may stand in one."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PASSED_ON = ("content-type", "retry-after", "x-request-id", "x-should-retry")
_PASSED_ON_PREFIXES = ("openai-", "anthropic-", "x-ratelimit-", "x-edgewise-")

_NO_TEXT = re.compile(r"[^\t\x20-\x7e\x80-\xff]")


def plain(text: str) -> str:
    """Text as a header's value may hold it: names of models and fields may hold anything."""
    return _NO_TEXT.sub("?", text)


def passed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The upstream's headers that mean something to a client; those of the connection do not."""
    return {
        name: plain(value)
        for name, value in headers.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
