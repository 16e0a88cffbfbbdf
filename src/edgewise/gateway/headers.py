"""Which of an upstream's headers reach a client."""

from __future__ import annotations

from collections.abc import Mapping

_PASSED_ON = ("content-type", "retry-after", "x-request-id", "x-should-retry")
_PASSED_ON_PREFIXES = ("openai-", "anthropic-", "x-ratelimit-", "x-edgewise-")


def passed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The upstream's headers that mean something to a client; those of the connection do not."""
    return {
        name: value
        for name, value in headers.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
