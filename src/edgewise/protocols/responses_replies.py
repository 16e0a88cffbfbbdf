"""The Responses API from the client's side: replies, streamed or whole, read into chat events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgewise.core.chat import ChatEvent, Finish, PartDelta, PartEnd, PartKind, PartStart
from edgewise.core.errors import OverloadedError, UpstreamError
from edgewise.core.requests import Usage
from edgewise.protocols.reply_parser import ReplyParser, count_in
from edgewise.protocols.responses_tools import flat_name

_KINDS: dict[str, PartKind] = {
    "message": "text",
    "reasoning": "reasoning",
    "function_call": "tool_call",
    "custom_tool_call": "custom_call",
}
_DELTAS = frozenset(
    (
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
    )
)
_BUSY = ("rate_limit_exceeded", "server_is_overloaded", "slow_down")


def read_error(fields: object) -> UpstreamError | OverloadedError:
    """The `error` of a failed response, or an error event."""
    given = fields if isinstance(fields, dict) else {}
    message, code = given.get("message"), given.get("code")
    text = message if isinstance(message, str) and message else "The upstream's response failed."
    if code in _BUSY:
        return OverloadedError(text)
    return UpstreamError(text, code=code if isinstance(code, str) else None)


def read_usage(fields: object) -> Usage:
    usage = fields if isinstance(fields, dict) else {}
    return Usage(
        prompt_tokens=count_in(usage, "input_tokens"),
        completion_tokens=count_in(usage, "output_tokens"),
        cached_tokens=count_in(usage.get("input_tokens_details"), "cached_tokens"),
        reasoning_tokens=count_in(usage.get("output_tokens_details"), "reasoning_tokens"),
    )


class StreamParser(ReplyParser):
    """Events of a streamed response -> chat events. One per reply: without its last event it was cut off."""

    def __init__(self) -> None:
        super().__init__()
        self._kind: PartKind | None = None
        self._text = ""  # of the open part
        self._has_calls = False

    def _read(self, body: Mapping[str, Any], name: str = "") -> Iterator[ChatEvent]:
        kind = body.get("type", "")
        if kind in _DELTAS:
            yield from self._more(body.get("delta") or "")
            return
        match kind:
            case "response.created" | "response.in_progress":
                self.model = (body.get("response") or {}).get("model") or self.model
            case "response.output_item.added":
                yield from self._start(body.get("item") or {})
            case "response.output_item.done":
                yield from self._done(body.get("item") or {})
            case "response.completed" | "response.incomplete":
                yield from self._end(body.get("response") or {})
            case "response.failed":
                yield from self._fail(read_error((body.get("response") or {}).get("error")))
            case "error":
                yield from self._fail(read_error(body.get("error") or body))

    def _start(self, item: Mapping[str, Any]) -> Iterator[ChatEvent]:
        yield from self._close_part()
        kind = _KINDS.get(item.get("type", ""))
        if kind is None:
            return
        self._kind, self._text = kind, ""
        name = ""
        if kind in ("tool_call", "custom_call"):
            self._has_calls = True
            name = flat_name(item.get("namespace"), str(item.get("name") or ""))
        yield PartStart(0, kind, str(item.get("call_id") or ""), name)

    def _more(self, text: object) -> Iterator[ChatEvent]:
        if text and isinstance(text, str) and self._kind is not None:
            self._text += text
            yield PartDelta(0, text)

    def _done(self, item: Mapping[str, Any]) -> Iterator[ChatEvent]:
        """A finished item. One that came without deltas tells its text here."""
        if self._kind is None:
            return
        if not self._text:
            yield from self._more(_text_of(item))
        yield from self._close_part()

    def _close_part(self) -> Iterator[ChatEvent]:
        if self._kind is not None:
            self._kind = None
            yield PartEnd(0)

    def _end(self, response: Mapping[str, Any]) -> Iterator[ChatEvent]:
        yield from self._close_part()
        self._over = True
        yield Finish(0, self._reason(response), read_usage(response.get("usage")))

    def _reason(self, response: Mapping[str, Any]) -> str:
        status = response.get("status")
        if status == "cancelled":
            return "cancelled"
        if status == "incomplete":
            return "length"
        return "tool_calls" if self._has_calls else "stop"


def _text_of(item: Mapping[str, Any]) -> str:
    """All text of an item."""
    for key in ("arguments", "input"):
        if isinstance(item.get(key), str):
            return str(item[key])
    blocks = item.get("content") or item.get("summary") or ()
    texts = (block.get("text") or block.get("refusal") or "" for block in blocks if isinstance(block, dict))
    return "".join(texts)


def parse_response(body: Mapping[str, Any]) -> list[ChatEvent]:
    """A whole response as the events of one that streams. Raises the error it failed with, UpstreamError for what is none."""
    if body.get("error"):
        raise read_error(body["error"])
    output = body.get("output")
    if not isinstance(output, list):
        raise UpstreamError("The upstream's answer has no output.", code="upstream_broken")
    parser = StreamParser()
    events: list[ChatEvent] = []
    for item in output:
        events += parser._read({"type": "response.output_item.added", "item": item})
        events += parser._read({"type": "response.output_item.done", "item": item})
    return [*events, *parser._read({"type": "response.completed", "response": body})]
