"""Chat completions from the client's side: replies of any server, streamed or whole, read into chat events.

Servers differ: fields that are null or absent, thinking as `reasoning` or `reasoning_content`, calls whole or in pieces, without index
or id, with arguments that are an object; usage with the last choice, after it, or as llama-server's `timings` alone. All of it is
read and no text is lost. A stream that ends without its end is a Failed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta, PartEnd, PartKind, PartStart
from edgewise.core.errors import UpstreamError
from edgewise.core.requests import Usage
from edgewise.protocols.reply_parser import ReplyParser, count_in, cut_off

_REASONS = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "cancelled": "cancelled",
    "abort": "cancelled",
}
_THOUGHTS = ("reasoning_content", "reasoning")


def new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


def read_usage(body: Mapping[str, Any]) -> Usage | None:
    """Counts of a reply or a chunk; None where it tells none."""
    usage = body.get("usage")
    if isinstance(usage, dict):
        cached = count_in(usage.get("prompt_tokens_details"), "cached_tokens")
        return Usage(
            prompt_tokens=count_in(usage, "prompt_tokens"),
            completion_tokens=count_in(usage, "completion_tokens"),
            cached_tokens=cached or count_in(usage, "prompt_cache_hit_tokens"),
            reasoning_tokens=count_in(usage.get("completion_tokens_details"), "reasoning_tokens"),
        )
    timings = body.get("timings")
    if isinstance(timings, dict) and "prompt_n" in timings:
        cached = count_in(timings, "cache_n")
        return Usage(
            prompt_tokens=cached + count_in(timings, "prompt_n"),
            completion_tokens=count_in(timings, "predicted_n"),
            cached_tokens=cached,
        )
    return None


def read_error(value: object, status: int = 502) -> UpstreamError:
    """An error object as it stands in a body or a stream."""
    if isinstance(value, str):
        return UpstreamError(value, status=status)
    fields = value if isinstance(value, dict) else {}
    message, kind, code = fields.get("message"), fields.get("type"), fields.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        status = code
    return UpstreamError(
        message if isinstance(message, str) and message else "The upstream reported an error.",
        status=status,
        kind=kind if isinstance(kind, str) else "server_error",
        code=code if isinstance(code, str) else None,
        param=fields["param"] if isinstance(fields.get("param"), str) else None,
    )


@dataclass(slots=True)
class _Call:
    """A call as far as it has come. It is begun once its name is known."""

    id: str = ""
    name: str = ""
    kind: PartKind = "tool_call"
    waiting: str = ""  # argument text not passed on yet
    text: str = ""  # and what was
    begun: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether nothing more is to come, as far as can be told: freeform text has no end of its own."""
        if self.kind == "custom_call":
            return True
        try:
            orjson.loads(self.text + self.waiting)
        except orjson.JSONDecodeError:
            return False
        return True


@dataclass(slots=True)
class _Choice:
    """One choice: the open part, and calls in the order of their indices. Parts never overlap, so a later call waits for an earlier one."""

    number: int
    open: PartKind | None = None
    calls: dict[int, _Call] = field(default_factory=dict)
    current: int | None = None  # the call that is open
    finish: tuple[str, str | int | None] | None = None

    def text(self, kind: PartKind, text: str) -> Iterator[ChatEvent]:
        if not text:
            return
        if self.open != kind:
            yield from self.end()
            self.open = kind
            yield PartStart(self.number, kind, "")
        yield PartDelta(self.number, text)

    def end(self) -> Iterator[ChatEvent]:
        """Whatever is open ends, calls that waited behind it included."""
        while self.current is not None:
            self.current = None
            yield PartEnd(self.number)
            self.open = None
            yield from self._next_call()
        if self.open is not None:
            self.open = None
            yield PartEnd(self.number)

    def call(self, piece: Mapping[str, Any]) -> Iterator[ChatEvent]:
        index, call = self._find(piece)
        function = piece.get("function") or piece.get("custom") or {}
        if "custom" in piece:
            call.kind = "custom_call"
        call.id = call.id or str(piece.get("id") or "")
        call.name = call.name or str(function.get("name") or "")
        arguments = function.get("arguments")
        if arguments is None:
            arguments = function.get("input")
        if isinstance(arguments, str):
            call.waiting += arguments
        elif arguments is not None:
            call.waiting += orjson.dumps(arguments).decode()
        if self.current is None:
            yield from self._next_call()
        elif index != self.current and self.calls[self.current].is_whole:
            self.current = None
            self.open = None
            yield PartEnd(self.number)
            yield from self._next_call()
        yield from self._flush()

    def _find(self, piece: Mapping[str, Any]) -> tuple[int, _Call]:
        """The call a piece belongs to: by index, by id, or the last one."""
        index, call_id = piece.get("index"), piece.get("id")
        if not isinstance(index, int):
            known = next((i for i, call in self.calls.items() if call_id and call.id == call_id), None)
            last = max(self.calls, default=-1)
            index = known if known is not None else last + (1 if call_id or last < 0 else 0)
        elif (held := self.calls.get(index)) is not None and call_id and held.id and held.id != call_id:
            # Servers that number every call 0: another id is another call.
            known = next((i for i, call in self.calls.items() if call.id == call_id), None)
            index = max(self.calls) + 1 if known is None else known
        return index, self.calls.setdefault(index, _Call())

    def _next_call(self) -> Iterator[ChatEvent]:
        """Begin the first call that has not been, if its name is known."""
        for index, call in self.calls.items():
            if not call.begun:
                if call.name:
                    if self.open is not None:
                        self.open = None
                        yield PartEnd(self.number)
                    call.begun, self.current, self.open = True, index, call.kind
                    call.id = call.id or new_call_id()
                    yield PartStart(self.number, call.kind, call.id, call.name)
                    yield from self._flush()
                return

    def _flush(self) -> Iterator[ChatEvent]:
        if self.current is None:
            return
        call = self.calls[self.current]
        if call.waiting:
            text, call.waiting = call.waiting, ""
            call.text += text
            yield PartDelta(self.number, text)


class StreamParser(ReplyParser):
    """Events of a streamed chat completion -> chat events. One per reply."""

    def __init__(self) -> None:
        super().__init__()
        self._choices: dict[int, _Choice] = {}
        self._usage: Usage | None = None

    def _end_mark(self) -> Iterable[ChatEvent]:
        return self._end()

    def _end_of_stream(self) -> Iterable[ChatEvent]:
        """A choice without a finish was cut off."""
        whole = self._choices and all(choice.finish for choice in self._choices.values())
        return self._end() if whole else self._fail(cut_off())

    def _read(self, chunk: Mapping[str, Any], name: str = "") -> Iterator[ChatEvent]:
        if chunk.get("error") or name == "error":
            yield from self._fail(read_error(chunk.get("error") or chunk))
            return
        self.model = chunk.get("model") or self.model
        self._usage = read_usage(chunk) or self._usage
        for raw in chunk.get("choices") or ():
            number = raw.get("index") or 0
            choice = self._choices.setdefault(number, _Choice(number))
            yield from _read_delta(choice, raw.get("delta") or raw.get("message") or {})
            if isinstance(raw.get("text"), str):  # a text completion
                yield from choice.text("text", raw["text"])
            if reason := raw.get("finish_reason"):
                if reason == "error":
                    yield from self._fail(UpstreamError("The upstream failed while it answered."))
                    return
                yield from choice.end()
                choice.finish = _REASONS.get(reason, "stop"), raw.get("stop_reason")

    def _end(self) -> list[ChatEvent]:
        """Everything that was held back, and the finish of every choice."""
        self._over = True
        usage = self._usage or Usage()
        events: list[ChatEvent] = []
        for choice in self._choices.values() or (_Choice(0),):
            events += choice.end()
            default = "tool_calls" if choice.calls else "stop"
            reason, matched = choice.finish or (default, None)
            events.append(Finish(choice.number, reason, usage, matched))
        return events


def _read_delta(choice: _Choice, delta: Mapping[str, Any]) -> Iterator[ChatEvent]:
    thought = next((delta[name] for name in _THOUGHTS if isinstance(delta.get(name), str)), "")
    yield from choice.text("reasoning", thought)
    yield from choice.text("text", _content_text(delta.get("content")))
    yield from choice.text("text", _content_text(delta.get("refusal")))
    for piece in delta.get("tool_calls") or ():
        yield from choice.call(piece)
    if legacy := delta.get("function_call"):
        yield from choice.call({"index": 0, "function": legacy})


def _content_text(content: object) -> str:
    """Text, or the text of content parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return ""


def parse_response(body: Mapping[str, Any]) -> list[ChatEvent]:
    """A whole reply, chat or text completion, as the events of one that streams. Raises UpstreamError for one that is none."""
    if body.get("error"):
        raise read_error(body["error"])
    if not isinstance(body.get("choices"), list) or not body["choices"]:
        raise UpstreamError("The upstream's answer has no choices.", code="upstream_broken")
    parser = StreamParser()
    events = list(parser._read(body))
    return events if events and isinstance(events[-1], Failed) else [*events, *parser._end()]
