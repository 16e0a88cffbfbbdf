"""What every wire format's stream looks like to the server, and the merging of deltas that `stream_interval` asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from edgewise.core.chat import ChatEvent, PartDelta


class StreamEncoder(Protocol):
    """Turns the events of one reply into bytes of its event stream. Stateful, one per reply, never blocks.

    The server calls `opening` once, `encode` with whatever is ready, `keepalive` after silence, then either `closing` or
    `failure`. Each result is whole events and goes out in one write.
    """

    def opening(self) -> bytes: ...

    def encode(self, events: Iterable[ChatEvent]) -> bytes: ...

    def keepalive(self) -> bytes:
        """A sign of life of the kind this format's clients count."""
        ...

    def closing(self) -> bytes: ...

    def failure(self, error: Exception) -> bytes: ...


class DeltaMerger:
    """Joins the deltas of a choice until `interval` tokens are together; every other event lets them go first."""

    __slots__ = ("_held", "_interval")

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._held: dict[int, PartDelta] = {}

    def merge(self, events: Iterable[ChatEvent]) -> Iterable[ChatEvent]:
        """The same events with neighbouring deltas joined."""
        for event in events:
            if isinstance(event, PartDelta):
                held = self._held.pop(event.choice, None)
                joined = event if held is None else held.joined(event)
                if len(joined.token_ids) >= self._interval:
                    yield joined
                else:
                    self._held[event.choice] = joined
            else:
                yield from self._release(event)
                yield event

    def _release(self, event: ChatEvent) -> Iterable[ChatEvent]:
        choice = getattr(event, "choice", None)
        held = list(self._held) if choice is None else [choice]
        for number in held:
            if (delta := self._held.pop(number, None)) is not None:
                yield delta
