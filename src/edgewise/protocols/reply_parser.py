"""What the readers of all APIs' streamed replies have in common: JSON events in order, and an end that comes once, whatever an upstream sends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from edgewise.core.chat import ChatEvent, Failed
from edgewise.core.errors import UpstreamError
from edgewise.protocols.sse import SseEvent

_MISREAD = (AttributeError, IndexError, KeyError, TypeError, ValueError)


def cut_off() -> UpstreamError:
    return UpstreamError("The upstream's answer ended before it was complete.", code="upstream_broken")


def count_in(fields: object, name: str) -> int:
    """A number of tokens as an upstream tells it; 0 for whatever is none."""
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


class ReplyParser(ABC):
    """Events of one streamed reply -> chat events. Nothing follows an end or a Failed. `model`: the name the upstream answers under."""

    def __init__(self) -> None:
        self.model = ""
        self._over = False

    def feed(self, event: SseEvent) -> list[ChatEvent]:
        if self._over:
            return []
        if event.data.strip() == b"[DONE]":
            return list(self._end_mark())
        try:
            body = orjson.loads(event.data)
        except orjson.JSONDecodeError:
            return self._fail(
                UpstreamError("The upstream sent an event that is not JSON.", code="upstream_broken")
            )
        if not isinstance(body, dict):
            return []
        events: list[ChatEvent] = []
        try:
            events.extend(self._read(body, event.name))  # what came before the flaw is part of the answer
        except _MISREAD:
            error = UpstreamError("The upstream sent an event of no known form.", code="upstream_malformed")
            return [*events, *self._fail(error)]
        return events

    def close(self) -> list[ChatEvent]:
        """The stream has ended. An answer that lacks its end was cut off."""
        return [] if self._over else list(self._end_of_stream())

    def _fail(self, error: Exception) -> list[ChatEvent]:
        self._over = True
        return [Failed(error)]

    # what each API does

    @abstractmethod
    def _read(self, body: Mapping[str, Any], name: str = "") -> Iterable[ChatEvent]:
        """One event. `name`: of the event itself, "" where it has none."""

    def _end_mark(self) -> Iterable[ChatEvent]:
        """`[DONE]`, which only some APIs know."""
        return ()

    def _end_of_stream(self) -> Iterable[ChatEvent]:
        return self._fail(cut_off())
