"""Events that no server should send: a reader answers with events of its own kind or a failure, and never raises."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from edgewise.core.chat import Failed, PartDelta, PartStart
from edgewise.protocols import chat_replies, messages_replies, responses_replies
from edgewise.protocols.reply_parser import ReplyParser
from edgewise.protocols.sse import SseEvent

PARSERS: list[type[ReplyParser]] = [
    chat_replies.StreamParser,
    messages_replies.StreamParser,
    responses_replies.StreamParser,
]
ODD: list[Any] = [None, True, 7, "text", [], [1], ["x"], {}, {"x": 1}, [{}], [None]]
EVENTS: list[Any] = [
    *[{"choices": one} for one in ODD],
    *[{"choices": [{"delta": one, "finish_reason": None}]} for one in ODD],
    *[{"choices": [{"delta": {"content": one, "tool_calls": one, "refusal": one}}]} for one in ODD],
    *[{"choices": [{"delta": {"tool_calls": [{"index": one, "id": one, "function": one}]}}]} for one in ODD],
    *[{"type": "message_start", "message": one} for one in ODD],
    *[{"type": "content_block_start", "content_block": {"type": "text", "text": one}} for one in ODD],
    *[{"type": "content_block_start", "content_block": {"type": "tool_use", "id": one, "name": one}} for one in ODD],
    *[{"type": "content_block_delta", "delta": {"type": "text_delta", "text": one}} for one in ODD],
    *[{"type": "content_block_delta", "delta": one} for one in ODD],
    *[{"type": "message_delta", "delta": one, "usage": one} for one in ODD],
    *[{"type": "response.output_item.added", "item": one} for one in ODD],
    *[{"type": "response.output_item.added", "item": {"type": "message", "content": one}} for one in ODD],
    *[{"type": "response.output_text.delta", "delta": one} for one in ODD],
    *[{"type": "response.failed", "response": one} for one in ODD],
    *[{"type": one} for one in ODD],
]  # fmt: skip
OPENINGS: list[Any] = [
    {"type": "content_block_start", "content_block": {"type": "text", "text": "a"}},
    {"type": "response.output_item.added", "item": {"type": "message"}},
    {"choices": [{"delta": {"content": "a"}}]},
]


@pytest.mark.parametrize("parser", PARSERS, ids=lambda one: one.__module__.rpartition(".")[2])
def test_odd_events_are_read_or_fail(parser: type[ReplyParser]):
    for event in EVENTS:
        reader = parser()
        events = [one for opening in OPENINGS for one in reader.feed(SseEvent("", orjson.dumps(opening)))]
        events += reader.feed(SseEvent("", orjson.dumps(event)))
        events += reader.close()
        assert all(isinstance(one.text, str) for one in events if isinstance(one, PartDelta)), event
        starts = [one for one in events if isinstance(one, PartStart)]
        assert all(isinstance(one.id, str) and isinstance(one.name, str) for one in starts), event
        assert not reader.feed(SseEvent("", b"{}")) and not reader.close(), "an end comes once"


@pytest.mark.parametrize("parser", PARSERS)
def test_what_was_said_before_an_event_that_cannot_be_is_not_lost(parser: type[ReplyParser]):
    reader = parser()
    for opening in OPENINGS:
        reader.feed(SseEvent("", orjson.dumps(opening)))
    (failure,) = reader.feed(SseEvent("", b"{broken"))
    assert isinstance(failure, Failed)
