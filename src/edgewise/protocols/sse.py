"""Framing of server-sent events (WHATWG HTML, section 9.2), written and read: `data:` lines, comments, the end mark of OpenAI streams."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from edgewise.core.errors import UpstreamError

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


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event as it came: its name ("" where it has none) and its data lines joined."""

    name: str
    data: bytes


_LINE_END = re.compile(rb"\r\n|\n|\r")


_MAX_EVENT_BYTES = 16 << 20


class SseParser:
    """Bytes of an event stream, cut anywhere -> events. Comments, ids and retry times are skipped; so are events without data.

    Takes time in proportion to the stream's length, however it is cut, and refuses an event of more than `max_event_bytes`.
    """

    def __init__(self, max_event_bytes: int = _MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._held: list[bytes] = []  # pieces without a line end, the first of them behind the last one
        self._num_open = 0  # bytes of the event under way
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that are complete with this piece. Raises UpstreamError for one that is too large."""
        ends = self._ends_in(data)
        self._held.append(data)
        self._num_open += len(data)
        events = self._whole_lines() if ends else []
        if self._num_open > self._max_event_bytes:
            raise UpstreamError(
                f"An event has more than {self._max_event_bytes} bytes.", code="upstream_malformed"
            )
        return events

    def _whole_lines(self) -> list[SseEvent]:
        text = b"".join(self._held)
        end = max(
            text.rfind(b"\n"), text.rfind(b"\r", 0, -1)
        )  # a carriage return at the end may be half a line end
        if end < 0:
            self._held = [text]
            return []
        if text[end : end + 2] == b"\r\n":
            end += 1
        self._held = [text[end + 1 :]]
        events = self._lines(text[: end + 1])
        self._num_open = len(self._held[0]) + sum(len(line) + 1 for line in self._data)
        return events

    def _ends_in(self, data: bytes) -> bool:
        """Whether a line may end in a piece, or with its first character."""
        return b"\n" in data or b"\r" in data or (bool(self._held) and self._held[-1].endswith(b"\r"))

    def close(self) -> list[SseEvent]:
        """The stream has ended: an event whose last blank line is missing counts, since servers forget it."""
        rest, self._held = b"".join(self._held), []
        return self._lines(rest.rstrip(b"\r\n") + b"\n\n")

    def _lines(self, text: bytes) -> list[SseEvent]:
        events = []
        for line in _LINE_END.split(text)[:-1]:
            if line:
                self._field(line)
            elif self._data:
                events.append(SseEvent(self._name, b"\n".join(self._data)))
                self._name, self._data = "", []
            else:
                self._name = ""
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode(errors="replace")
