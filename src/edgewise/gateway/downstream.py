"""The client's side of one request: what has been sent, whether it is still there, and the heartbeat of all streams.

One heartbeat serves every stream, so an idle stream costs no task and no timer of its own, and a busy one nothing per chunk but a look
at the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from starlette.types import Receive, Send

RawHeaders = list[tuple[bytes, bytes]]


def raw_headers(headers: Mapping[str, str]) -> RawHeaders:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


class Downstream:
    """The way back to one client. Event loop only."""

    __slots__ = (
        "_beat",
        "_clock",
        "_receive",
        "_send",
        "ended",
        "first_write_s",
        "gone",
        "last_write_s",
        "started",
    )

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._clock = asyncio.get_running_loop().time
        self._beat: asyncio.Task[None] | None = None
        self.started = False
        self.ended = False
        self.gone = False
        self.last_write_s = self._clock()
        self.first_write_s: float | None = None

    async def start(self, status: int, headers: RawHeaders) -> None:
        self.started = True
        self.last_write_s = self._clock()
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes) -> None:
        """Send a piece; waits while the client reads too slowly. A beat under way goes first."""
        if self._beat is not None:
            await self._beat
        self.last_write_s = self._clock()
        if self.first_write_s is None:
            self.first_write_s = self.last_write_s
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        self.ended = True  # no beat begins any more
        if self._beat is not None:
            await self._beat
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def until_gone(self) -> None:
        """Returns when the client has closed its connection. Call after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True

    def beat(self, work: Callable[[], Awaitable[None]]) -> None:
        """Let a sign of life be sent beside whatever is going on, unless one still is."""
        if self._beat is None and not self.ended:
            self._beat = asyncio.ensure_future(self._run_beat(work))

    async def _run_beat(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            self._beat = None

    async def beat_now(self, data: bytes) -> None:
        """A sign of life itself: `write` without waiting for the beat, which this is."""
        self.last_write_s = self._clock()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})


class Beating(Protocol):
    """A stream that wants signs of life."""

    def check(self, now_s: float) -> None:
        """Called often, whatever the stream is doing; beats where it is time."""
        ...


class Heartbeat:
    """Looks after all streams, as often as the shortest of its intervals asks. Runs only while there are any."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._streams: set[Beating] = set()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: Beating) -> None:
        self._streams.add(stream)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def remove(self, stream: Beating) -> None:
        self._streams.discard(stream)

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._streams:
            await asyncio.sleep(self._step_s)
            now_s = clock()
            for stream in tuple(self._streams):
                stream.check(now_s)
