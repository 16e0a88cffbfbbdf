"""What leaves for the client of a streamed request: the upstream's bytes as they are, or events of another API made of them.

An outlet never ends in the middle of an event. What came of an event before its upstream died is not sent, so the error event that follows
stands by itself.
"""

from __future__ import annotations

import re
from typing import Protocol

import orjson

from edgewise.gateway import signs
from edgewise.gateway.parts import BrokenReplyError
from edgewise.gateway.profile import Api
from edgewise.serving.errors import HttpError, shape_of

_CHAT_END = re.compile(rb"""data: ?\[DONE\]|data: ?\{"error"|"finish_reason": ?"[a-z]""")
_CHAT_MARK = b"[DONE]"
_END_MARKS = {
    Api.CHAT: _CHAT_END,
    Api.COMPLETIONS: _CHAT_END,
    Api.MESSAGES: re.compile(rb'"type": ?"(message_stop|error)"'),
    Api.RESPONSES: re.compile(rb'"type": ?"(response\.(completed|incomplete|failed)|error)"'),
}
"""What the last events of an answer hold. A finish_reason says as much as [DONE], which some servers leave out."""
_MAX_HELD_BYTES = 1 << 20
_MAX_FIRST_BYTES = 64 << 10


class Outlet(Protocol):
    """One stream on its way to the client. Every result is whole events, or nothing."""

    def opening(self) -> bytes:
        """What is sent as soon as the upstream has answered with success."""
        ...

    def feed(self, piece: bytes) -> bytes:
        """What follows from a piece of the upstream's body."""
        ...

    def keepalive(self, silent_s: float) -> bytes: ...

    def closing(self) -> bytes:
        """The rest, after the upstream's body has ended as its framing says. Raises BrokenReplyError where the answer has not."""
        ...

    def failure(self, error: Exception) -> bytes: ...

    @property
    def failed(self) -> bool:
        """Whether an error has been written: nothing follows it."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the upstream has said all it has to say."""
        ...


def failure_event(api: Api, error: Exception) -> bytes:
    """An error as the last event of a stream of an API, which may not have begun."""
    shape = shape_of({"path": api.value})
    body = shape.encode_http(error) if isinstance(error, HttpError) else shape.encode(error)
    encoded = orjson.dumps(body)
    match api:
        case Api.MESSAGES:
            return b"event: error\ndata: " + encoded + b"\n\n"
        case Api.RESPONSES:
            inner = body["error"]
            event = {
                "type": "error",
                "code": inner["code"] or "server_error",
                "message": inner["message"],
                "param": inner["param"],
                "sequence_number": 0,
            }
            return b"event: error\ndata: " + orjson.dumps(event) + b"\n\n"
        case _:
            return b"data: " + encoded + b"\n\ndata: [DONE]\n\n"


class BeforeAnswer:
    """While no upstream has answered."""

    failed = False

    def __init__(self, api: Api, model: str, message_id: str) -> None:
        self._api = api
        self._model = model
        self._id = message_id
        self.begun = False

    def keepalive(self, silent_s: float) -> bytes:
        data = signs.before_first_event(self._api, silent_s, self._model, self._id, begun=self.begun)
        self.begun = True
        return data

    def failure(self, error: Exception) -> bytes:
        return failure_event(self._api, error)


class PassThrough:
    """The upstream's own bytes. `before`: what was sent while it was silent, if anything."""

    def __init__(self, api: Api, before: BeforeAnswer) -> None:
        self._api = api
        self._before = before
        self._second_start = api is Api.MESSAGES and before.begun  # the client has seen a message_start
        self._held = b""
        self._first = b""
        self._before_last = b""
        self._last = b""
        self.failed = False

    def opening(self) -> bytes:
        return b""

    def feed(self, piece: bytes) -> bytes:
        data = self._held + piece if self._held else piece
        if not data.endswith(b"\n\n"):
            data = self._whole_events(data)
            if not data:
                return b""
        else:
            self._held = b""
        if not self._first:
            data = self._begin(data)
        self._before_last, self._last = self._last, data
        return data

    def _whole_events(self, data: bytes) -> bytes:
        """The events that are complete; the rest is held, within reason: an event beyond it goes out as it comes."""
        end = max(data.rfind(b"\n\n") + 2, data.rfind(b"\r\n\r\n") + 4, data.rfind(b"\r\r") + 2)
        if end < 4 and len(data) <= _MAX_HELD_BYTES:  # rfind's -1 leads to 1 and 3
            end = 0
        elif end < 4:
            end = len(data)
        self._held = data[end:]
        return data[:end]

    def _begin(self, data: bytes) -> bytes:
        self._first = data[:_MAX_FIRST_BYTES]
        if not self._second_start:
            return data
        self._second_start = False
        return _without_start(data)

    def keepalive(self, silent_s: float) -> bytes:
        if not self._first:
            return self._before.keepalive(silent_s)
        return signs.between_events(self._api, self._first, self._last)

    def closing(self) -> bytes:
        if not self.complete:
            raise BrokenReplyError("the stream ended before the answer did")
        last = self._held if _END_MARKS[self._api].search(self._held) else b""  # else half an event
        if self._api in (Api.CHAT, Api.COMPLETIONS) and _CHAT_MARK not in self._last + last:
            last += b"data: [DONE]\n\n"
        return last

    def failure(self, error: Exception) -> bytes:
        self.failed = True
        return failure_event(self._api, error)

    @property
    def complete(self) -> bool:
        return _END_MARKS[self._api].search(self._before_last + self._last + self._held) is not None


def _without_start(data: bytes) -> bytes:
    """Events without the message_start at their head, its counts kept: the client has had one already."""
    end = data.find(b"\n\n") + 2
    head, rest = (data[:end], data[end:]) if end > 1 else (data, b"")
    event = signs.data_of(head)
    if event.get("type") != "message_start":
        return data
    message = event.get("message")
    usage = (message.get("usage") if isinstance(message, dict) else None) or {}
    return signs.message_delta({"output_tokens": 0, **usage}) + rest
