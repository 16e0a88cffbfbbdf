"""The streams of many prompts merged into one source of events, and renumbered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from edgewise.core.chat import ChatEvent, Failed
from edgewise.pipeline import Stream


class MergedStreams:
    """The events of several prompts as they come. Choice c of prompt p becomes choice p * `num_choices` + c."""

    def __init__(self, streams: Sequence[Stream], num_choices: int) -> None:
        self._streams = streams
        self._num_choices = num_choices
        self._events: list[ChatEvent] = []
        self._news = asyncio.Event()
        self._num_open = len(streams)
        self._failed = False
        self._broken: Exception | None = None
        self._pumps = [asyncio.create_task(self._pump(i, stream)) for i, stream in enumerate(streams)]

    async def _pump(self, index: int, stream: Stream) -> None:
        base = index * self._num_choices
        try:
            while events := await stream.ready_events():
                self._events += [_renumbered(event, base) for event in events]
                self._news.set()
        except Exception as error:  # must not look like the end of a stream
            self._broken = self._broken or error
        finally:
            self._num_open -= 1
            self._news.set()

    async def ready_events(self) -> list[ChatEvent]:
        while not self._events and self._num_open and not self._failed and self._broken is None:
            self._news.clear()
            await self._news.wait()
        events, self._events = self._events, []
        if self._broken is not None:
            raise self._broken
        if self._failed:
            return []
        for i, event in enumerate(events):
            if isinstance(event, Failed):  # nothing of any prompt follows an error
                self._failed = True
                self.cancel()
                return events[: i + 1]
        return events

    def cancel(self) -> None:
        for stream in self._streams:
            stream.cancel()


def _renumbered(event: ChatEvent, base: int) -> ChatEvent:
    if base == 0 or isinstance(event, Failed):
        return event
    return replace(event, choice=event.choice + base)
