"""The events of a streamed message.

The first event carries the prompt's token counts and goes out before the engine has begun. Blocks come one after another: start,
deltas, stop. A text or thinking block is begun with its first text, so there are no empty ones; clients that replay a conversation to
Anthropic would be refused for them. A delta costs one JSON string: what stands round it is made once a block.

Claude Code leaves a stream after 300 s without a sign of life, and pings alone are none to it: a message_delta without a
stop_reason is, at any place in the stream, and changes nothing in the clients that add events up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta, PartEnd, PartStart
from edgewise.core.errors import RequestCancelledError
from edgewise.core.requests import Usage
from edgewise.protocols import sse
from edgewise.protocols.anthropic import encode_message, encode_stop, encode_usage, signature_of
from edgewise.protocols.anthropic_errors import encode_error
from edgewise.protocols.reply import PromptEcho, ReplyHead

_PING = sse.named("ping", {"type": "ping"})
_DELTAS = {
    "text": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "tool_call": ("input_json_delta", "partial_json"),
}


def _event(kind: str, **fields: Any) -> bytes:
    return sse.named(kind, {"type": kind, **fields})


class AnthropicStreamEncoder:
    """StreamEncoder of /v1/messages."""

    def __init__(self, head: ReplyHead, prompt: PromptEcho) -> None:
        self._head = head
        self._usage = Usage(prompt_tokens=len(prompt.token_ids), cached_tokens=prompt.cached_tokens)
        self._part: PartStart | None = None  # the part that is open
        self._block = -1  # its block's number, or that of the last
        self._started = False  # whether its block has begun
        self._pieces: list[str] = []  # its text
        self._frame = b"", b""  # what stands before and after the text of a delta
        self._has_calls = False
        self._finished = False  # the reason it stopped has been told
        self._failed = False

    def opening(self) -> bytes:
        return _event("message_start", message=encode_message(self._head, self._usage)) + _PING

    def encode(self, events: Iterable[ChatEvent]) -> bytes:
        return b"".join(map(self._encode_event, events))

    def _encode_event(self, event: ChatEvent) -> bytes:
        match event:
            case PartDelta():
                return self._encode_delta(event)
            case PartStart():
                self._part, self._started, self._pieces = event, False, []
                return self._begin_block(event) if event.kind == "tool_call" else b""
            case PartEnd():
                return self._end_block()
            case Finish():
                return self._encode_finish(event)
            case Failed():
                return self.failure(event.error)

    def _encode_delta(self, event: PartDelta) -> bytes:
        self._usage.completion_tokens += len(event.token_ids)
        if not event.text or self._part is None:
            return b""
        start = b"" if self._started else self._begin_block(self._part)
        self._pieces.append(event.text)
        before, after = self._frame
        return start + before + orjson.dumps(event.text) + after

    def _begin_block(self, part: PartStart) -> bytes:
        self._block += 1
        self._started = True
        self._has_calls |= part.kind == "tool_call"
        kind, key = _DELTAS.get(part.kind, _DELTAS["text"])
        mark = "\x00"
        before, after = self._delta({"type": kind, key: mark}).split(orjson.dumps(mark))
        self._frame = before, after
        return _event("content_block_start", index=self._block, content_block=_empty_block(part))

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._block, delta=delta)

    def _end_block(self) -> bytes:
        part, self._part = self._part, None
        if part is None or not self._started:
            return b""
        last = b""
        if part.kind == "reasoning":
            signature = signature_of("".join(self._pieces))
            last = self._delta({"type": "signature_delta", "signature": signature})
        elif part.kind == "tool_call" and not self._pieces:
            last = self._delta({"type": "input_json_delta", "partial_json": "{}"})
        return last + _event("content_block_stop", index=self._block)

    def _encode_finish(self, event: Finish) -> bytes:
        if event.reason == "cancelled":
            return self.failure(RequestCancelledError("The server is shutting down."))
        self._usage = event.usage
        self._finished = True
        stop = encode_stop(event.reason, event.matched_stop, has_calls=self._has_calls)
        return self._end_block() + _event("message_delta", delta=stop, usage=encode_usage(event.usage))

    def keepalive(self) -> bytes:
        """Once the reason has been told, a message_delta without one would take it back."""
        if self._finished:
            return _PING
        delta = {"stop_reason": None, "stop_sequence": None}
        usage = {"output_tokens": self._usage.completion_tokens}
        return _PING + _event("message_delta", delta=delta, usage=usage)

    def closing(self) -> bytes:
        return b"" if self._failed else _event("message_stop")

    def failure(self, error: Exception) -> bytes:
        self._failed = True
        return sse.named("error", encode_error(error))


def _empty_block(part: PartStart) -> dict[str, Any]:
    """A block as it is before its deltas."""
    if part.kind == "tool_call":
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
    if part.kind == "reasoning":
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}
