"""Signs of life of each API on a stream that is passed through, and what a stream says before its upstream does.

Measured on the clients: comments keep OpenCode and OpenAI's packages; Claude Code leaves after 300 s without an event other than
ping, and takes a message_delta without a stop_reason for one; Codex counts every event and no comment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from edgewise.gateway.profile import Api
from edgewise.protocols import sse

COMMENT = sse.comment("working")
PING = sse.named("ping", {"type": "ping"})
UNASKED_EVENT_S = 120.0
"""How long a Responses stream that has not begun lives on comments: events before the first one trouble OpenAI's package, silence Codex."""

_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"')
_SEQUENCE = re.compile(rb'"sequence_number"\s*:\s*(\d+)')


def message_delta(usage: Mapping[str, Any]) -> bytes:
    """A message_delta that changes nothing but the counts."""
    delta = {"stop_reason": None, "stop_sequence": None}
    return sse.named("message_delta", {"type": "message_delta", "delta": delta, "usage": dict(usage)})


def message_start(message_id: str, model: str) -> bytes:
    """The first event of a message, before anything is known of it."""
    message: dict[str, Any] = {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    return sse.named("message_start", {"type": "message_start", "message": message})


def before_first_event(api: Api, silent_s: float, model: str, message_id: str, *, begun: bool) -> bytes:
    """A sign of life while the upstream has said nothing. `begun`: this has been called before for the stream."""
    match api:
        case Api.MESSAGES:
            opening = b"" if begun else message_start(message_id, model)
            return opening + PING + (message_delta({"output_tokens": 0}) if begun else b"")
        case Api.RESPONSES if silent_s >= UNASKED_EVENT_S:
            return COMMENT + sse.named("keepalive", {"type": "keepalive", "sequence_number": 0})
        case _:
            return COMMENT


def between_events(api: Api, first: bytes, last: bytes) -> bytes:
    """A sign of life after the events `first` (the stream's beginning) ... `last` (its latest piece)."""
    match api:
        case Api.MESSAGES:
            ended = b"message_delta" in last or b"message_stop" in last
            return PING if ended else PING + message_delta({"output_tokens": 0})
        case Api.RESPONSES:
            return COMMENT + _in_progress(first, last)
        case Api.CHAT:
            return COMMENT + (b"" if _FINISHED.search(last) else _empty_chunk(first))
        case _:
            return COMMENT


def data_of(first: bytes) -> dict[str, Any]:
    """The JSON of a stream's first event that has some; nothing where it is none."""
    for line in first.splitlines():
        if line.startswith(b"data:"):
            try:
                value = orjson.loads(line[5:])
            except orjson.JSONDecodeError:
                return {}
            return value if isinstance(value, dict) else {}
    return {}


def _empty_chunk(first: bytes) -> bytes:
    chunk = data_of(first)
    if not chunk.get("choices"):
        return b""
    head = {key: chunk[key] for key in ("id", "object", "created", "model") if key in chunk}
    return sse.data(head | {"choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}]})


def _in_progress(first: bytes, last: bytes) -> bytes:
    event = data_of(first)
    response = event.get("response")
    if not isinstance(response, dict) or b"response.completed" in last:
        return b""
    numbers = _SEQUENCE.findall(last)
    number = int(numbers[-1]) if numbers else event.get("sequence_number", 0)
    kind = "response.in_progress"
    return sse.named(kind, {"type": kind, "response": response, "sequence_number": number})
