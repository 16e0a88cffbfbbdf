"""A response from its chat events: the events of its stream, and the response object they add up to.

The answer in one piece is the object in the last event of the stream that would have been sent, so the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta, PartEnd, PartStart
from edgewise.core.errors import InvalidRequestError, OverloadedError
from edgewise.core.requests import Usage
from edgewise.protocols import sse
from edgewise.protocols.errors import encode_error
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.reply import Choice, Reply, ReplyHead
from edgewise.protocols.responses import ResponseOptions
from edgewise.protocols.responses_items import (
    CustomCallItem,
    Event,
    FunctionCallItem,
    OutputItem,
    ReasoningItem,
    TextItem,
)
from edgewise.protocols.stream import DeltaMerger

_COMPLETE = ("stop", "tool_calls")


class ResponseWriter:
    """One response as far as it has come. Chat events in, wire events out; each carries the next sequence number.

    An item is closed by what follows it, since only then is it known whether it was cut off.
    """

    def __init__(self, head: ReplyHead, options: ResponseOptions, writer: LogprobWriter) -> None:
        self._head = head
        self._options = options
        self._writer = None if options.logprobs is None else writer
        self._items: list[OutputItem] = []
        self._number = 0
        self._status = "in_progress"
        self._usage: Usage | None = None
        self._error: dict[str, str] | None = None
        self._reason: str | None = None  # why it is incomplete

    @property
    def ended(self) -> bool:
        return self._status != "in_progress"

    def response(self) -> dict[str, Any]:
        """The response object."""
        return {
            "id": self._head.id,
            "object": "response",
            "created_at": self._head.created,
            "model": self._head.model,
            "status": self._status,
            "error": self._error,
            "incomplete_details": None if self._reason is None else {"reason": self._reason},
            "output": [item.encode() for item in self._items],
            "usage": None if self._usage is None else encode_response_usage(self._usage),
            **self._options.constant,
        }

    def opening(self) -> list[Event]:
        bare = self._bare()
        return self._numbered(
            [{"type": f"response.{name}", "response": bare} for name in ("created", "in_progress")]
        )

    def sign_of_life(self) -> list[Event]:
        return self._numbered([{"type": "response.in_progress", "response": self._bare()}])

    def _bare(self) -> dict[str, Any]:
        """The response without its items, which have events of their own: OpenAI's client would begin them anew."""
        return self.response() | {"output": []}

    def feed(self, event: ChatEvent) -> list[Event]:
        return self._numbered(self._events_of(event))

    def fail(self, error: Exception) -> list[Event]:
        """The end by an error; nothing when the response has ended already."""
        if self.ended:
            return []
        events = self._close(complete=False)
        self._error = _response_error(error)
        return self._numbered([*events, self._end("failed")])

    def _numbered(self, events: list[Event]) -> list[Event]:
        for event in events:
            event["sequence_number"] = self._number
            self._number += 1
        return events

    def _events_of(self, event: ChatEvent) -> list[Event]:
        match event:
            case PartDelta():
                return self._items[-1].delta(event)
            case PartStart():
                events = self._close(complete=True)
                self._items.append(self._new_item(event))
                return events + self._items[-1].start()
            case Finish():
                return self._finish(event)
            case PartEnd():
                return []
            case Failed():
                return self.fail(event.error)

    def _new_item(self, event: PartStart) -> OutputItem:
        place, options = len(self._items), self._options
        match event.kind:
            case "reasoning":
                return ReasoningItem(
                    self._head.id,
                    place,
                    summarised=options.shows_summaries,
                    carried=options.carries_reasoning,
                )
            case "tool_call":
                return FunctionCallItem(self._head.id, place, event, options.tools.get(event.name))
            case "custom_call":
                return CustomCallItem(self._head.id, place, event, options.tools.get(event.name))
            case _:
                return TextItem(self._head.id, place, self._writer)

    def _close(self, *, complete: bool) -> list[Event]:
        """End the last item, if it has not ended."""
        if not self._items or self._items[-1].status != "in_progress":
            return []
        self._items[-1].status = "completed" if complete else "incomplete"
        return self._items[-1].end()

    def _finish(self, event: Finish) -> list[Event]:
        self._usage = event.usage
        complete = event.reason in _COMPLETE
        events = self._close(complete=complete)
        if complete:
            return [*events, self._end("completed")]
        if event.reason == "cancelled":
            return [*events, self._end("cancelled")]
        self._reason = "max_output_tokens"
        return [*events, self._end("incomplete")]

    def _end(self, status: str) -> Event:
        self._status = status
        kind = "incomplete" if status == "cancelled" else status  # a cancelled one has no event of its own
        return {"type": f"response.{kind}", "response": self.response()}


class ResponsesStreamEncoder:
    """StreamEncoder of /v1/responses. `on_end` gets the response object once, when the response has ended."""

    def __init__(
        self,
        head: ReplyHead,
        options: ResponseOptions,
        writer: LogprobWriter,
        on_end: Callable[[dict[str, Any]], None] = lambda response: None,
    ) -> None:
        self._writer = ResponseWriter(head, options, writer)
        self._merger = DeltaMerger(options.stream_interval) if options.stream_interval > 1 else None
        self._on_end = on_end

    @property
    def ended(self) -> bool:
        return self._writer.ended

    def response(self) -> dict[str, Any]:
        """The response object as far as it has come."""
        return self._writer.response()

    def opening(self) -> bytes:
        return _encoded(self._writer.opening())

    def encode(self, events: Iterable[ChatEvent]) -> bytes:
        if self._merger is not None:
            events = self._merger.merge(events)
        return b"".join(self._sent(self._writer.feed(event)) for event in events)

    def keepalive(self) -> bytes:
        """Codex counts events only, and leaves after 300 s without one."""
        return b"" if self._writer.ended else _encoded(self._writer.sign_of_life())

    def closing(self) -> bytes:
        return b""

    def failure(self, error: Exception) -> bytes:
        return self._sent(self._writer.fail(error))

    def _sent(self, events: list[Event]) -> bytes:
        if events and self._writer.ended:
            self._on_end(events[-1]["response"])
        return _encoded(events)


def _encoded(events: Iterable[Event]) -> bytes:
    return b"".join(sse.named(event["type"], event) for event in events)


def encode_response(
    head: ReplyHead, options: ResponseOptions, reply: Reply, writer: LogprobWriter
) -> dict[str, Any]:
    """The response object of an answer in one piece."""
    response = ResponseWriter(head, options, writer)
    for event in _events_of(reply.choices[0], reply.usage):
        response.feed(event)
    return response.response()


def _events_of(choice: Choice, usage: Usage) -> Iterator[ChatEvent]:
    """The events a gathered answer came from, its deltas joined."""
    for part in choice.parts:
        yield PartStart(0, part.kind, part.id, part.name)
        yield PartDelta(0, part.text, logprobs=tuple(part.logprobs) or None)
        yield PartEnd(0)
    yield Finish(0, choice.finish_reason or "stop", usage, choice.matched_stop)


def encode_response_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def _response_error(error: Exception) -> dict[str, str]:
    """The `error` of a failed response. Its codes are the API's own; Codex reads some of them.

    A busy server is `rate_limit_exceeded` with the time to wait in the message, after which Codex 0.171 asks again; after its other two
    words for it, `server_is_overloaded` and `slow_down`, it gives up and asks for another model.
    """
    message = encode_error(error)["error"]["message"]
    match error:
        case InvalidRequestError():
            code = error.code or "invalid_prompt"
        case OverloadedError():
            code = "rate_limit_exceeded"
            message = f"{message.rstrip('.')}. Please try again in {error.retry_after_s}s."
        case _:
            code = "server_error"
    return {"code": code, "message": message}
