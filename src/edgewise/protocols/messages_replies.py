"""The Messages API from the client's side: replies, streamed or whole, read into chat events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from edgewise.core.chat import ChatEvent, Finish, PartDelta, PartEnd, PartKind, PartStart
from edgewise.core.errors import OverloadedError, UpstreamError
from edgewise.core.requests import Usage
from edgewise.protocols.reply_parser import ReplyParser, count_in, cut_off

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
}
_BLOCKS: dict[str, tuple[PartKind, str]] = {
    "text": ("text", "text"),
    "thinking": ("reasoning", "thinking"),
    "tool_use": ("tool_call", ""),
}
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def read_error(body: Mapping[str, Any]) -> UpstreamError | OverloadedError:
    """Anthropic's error object, in a body or an event."""
    error = body.get("error")
    fields = error if isinstance(error, dict) else {}
    kind, message = fields.get("type"), fields.get("message")
    text = message if isinstance(message, str) else "The upstream reported an error."
    if kind == "overloaded_error":
        return OverloadedError(text)
    return UpstreamError(text, status=_STATUS.get(str(kind), 502), kind=str(kind or "api_error"))


def _usage(fields: object, before: Usage) -> Usage:
    """Counts as an event tells them; what it leaves out stays as it was."""
    if not isinstance(fields, dict):
        return before
    if fields.get("input_tokens") is not None:
        cached = count_in(fields, "cache_read_input_tokens")
        rest = count_in(fields, "input_tokens") + count_in(fields, "cache_creation_input_tokens")
        before = replace(before, prompt_tokens=cached + rest, cached_tokens=cached)
    if fields.get("output_tokens") is not None:
        before = replace(before, completion_tokens=count_in(fields, "output_tokens"))
    if isinstance(details := fields.get("output_tokens_details"), dict):
        before = replace(before, reasoning_tokens=count_in(details, "thinking_tokens"))
    return before


class StreamParser(ReplyParser):
    """Events of a streamed message -> chat events. One per reply."""

    def __init__(self) -> None:
        super().__init__()
        self._usage = Usage()
        self._kind: PartKind | None = None
        self._has_text = False  # of the open block
        self._finish: tuple[str, str | None] | None = None

    def _end_of_stream(self) -> Iterable[ChatEvent]:
        """One whose stop reason was told is whole."""
        return self._fail(cut_off()) if self._finish is None else self._end()

    def _read(self, body: Mapping[str, Any], name: str = "") -> Iterator[ChatEvent]:
        match body.get("type"):
            case "message_start":
                message = body.get("message") or {}
                self.model = message.get("model") or ""
                self._usage = _usage(message.get("usage"), self._usage)
            case "content_block_start":
                yield from self._end_block()
                yield from self._start_block(body.get("content_block") or {})
            case "content_block_delta":
                delta = body.get("delta") or {}
                yield from self._text(delta.get(_DELTAS.get(str(delta.get("type")), ""), ""))
            case "content_block_stop":
                yield from self._end_block()
            case "message_delta":
                self._usage = _usage(body.get("usage"), self._usage)
                delta = body.get("delta") or {}
                if reason := delta.get("stop_reason"):
                    self._finish = _REASONS.get(reason, "stop"), delta.get("stop_sequence")
            case "message_stop":
                yield from self._end()
            case "error":
                yield from self._fail(read_error(body))

    def _start_block(self, block: Mapping[str, Any]) -> Iterator[ChatEvent]:
        known = _BLOCKS.get(str(block.get("type")))
        if known is None:
            return
        self._kind, key = known
        self._has_text = False
        yield PartStart(0, self._kind, str(block.get("id") or ""), str(block.get("name") or ""))
        if self._kind == "tool_call":
            if block.get("input"):
                yield from self._text(orjson.dumps(block["input"]).decode())
        else:
            yield from self._text(block.get(key) or "")

    def _text(self, text: object) -> Iterator[ChatEvent]:
        if text and isinstance(text, str) and self._kind is not None:
            self._has_text = True
            yield PartDelta(0, text)

    def _end_block(self) -> Iterator[ChatEvent]:
        if self._kind is None:
            return
        if self._kind == "tool_call" and not self._has_text:
            yield from self._text("{}")
        self._kind = None
        yield PartEnd(0)

    def _end(self) -> Iterator[ChatEvent]:
        self._over = True
        yield from self._end_block()
        reason, matched = self._finish or ("stop", None)
        yield Finish(0, reason, self._usage, matched)


def parse_response(body: Mapping[str, Any]) -> list[ChatEvent]:
    """A whole message as the events of one that streams. Raises the error it holds, UpstreamError for what is no message."""
    if body.get("type") == "error":
        raise read_error(body)
    content = body.get("content")
    if not isinstance(content, list):
        raise UpstreamError("The upstream's answer has no content.", code="upstream_broken")
    parser = StreamParser()
    steps = [
        {"type": "message_start", "message": body},
        *({"type": "content_block_start", "content_block": block} for block in content),
        {"type": "message_delta", "delta": body},
        {"type": "message_stop"},
    ]
    return [event for step in steps for event in parser._read(step)]
