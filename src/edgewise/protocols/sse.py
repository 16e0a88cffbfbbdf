"""Framing of server-sent events (WHATWG HTML, section 9.2): `data:` lines, comments, and the end mark of OpenAI streams."""

from __future__ import annotations

from typing import Any

import orjson

DONE = b"data: [DONE]\n\n"
END = b"\n\n"
CONTENT_TYPE = "text/event-stream"


def data(payload: Any) -> bytes:
    """One event without a name. JSON holds no raw newline, so one line is enough."""
    return b"data: " + orjson.dumps(payload) + END


def named(name: str, payload: Any) -> bytes:
    """One event with a name."""
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(payload) + END


def comment(text: str) -> bytes:
    """A line every client skips."""
    return b": " + text.encode() + END
