"""The response that streams: headers and the opening event at once, one write for all events that are ready, signs of life
by wall clock, an orderly end whatever happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgewise.core.chat import ChatEvent, Failed
from edgewise.core.errors import RequestCancelledError
from edgewise.protocols import sse
from edgewise.protocols.stream import StreamEncoder

logger = logging.getLogger("edgewise.serving")

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""The second keeps nginx from holding events back."""


class EventSource(Protocol):
    """Events of one HTTP request. Event loop only; one consumer."""

    async def ready_events(self) -> list[ChatEvent]:
        """All events that are there, at least one; an empty list once everything has ended."""
        ...

    def cancel(self) -> None:
        """Ask whatever answers to stop; the events then end soon. Safe to repeat."""
        ...


class EventStreamResponse(Response):
    """Streams a source through an encoder. `before_encode` runs ahead of each batch of events; `on_close` once, last.

    `encode_beside`, where given, runs the encoding off the event loop: for streams whose events can be very large.
    """

    media_type = sse.CONTENT_TYPE

    def __init__(
        self,
        source: EventSource,
        encoder: StreamEncoder,
        *,
        keep_alive_s: float,
        before_encode: Callable[[], None],
        on_close: Callable[[], None],
        headers: Mapping[str, str] | None = None,
        encode_beside: Callable[[Callable[[], bytes]], Awaitable[bytes]] | None = None,
    ) -> None:
        super().__init__(headers={**_HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._source = source
        self._encoder = encoder
        self._keep_alive_s = keep_alive_s
        self._before_encode = before_encode
        self._on_close = on_close
        self._encode_beside = encode_beside
        self._last_write_s = 0.0
        self._write_lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pulse: asyncio.Task[None] | None = None
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._write(send, self._encoder.opening())
            pulse = asyncio.create_task(self._pulse(send))
            await self._run(send)
        finally:
            if pulse is not None:
                pulse.cancel()
            self._on_close()

    async def _run(self, send: Send) -> None:
        try:
            failed = await self._pass_events_on(send)
        except (
            asyncio.CancelledError
        ):  # the server stops and waits for nothing more: this is the task's own end
            stopping = RequestCancelledError("The server is shutting down.")
            await self._write(send, self._encoder.failure(stopping), last=True)
            return
        except Exception as error:
            logger.error("a stream failed: %s", error, exc_info=error)
            await self._write(send, self._encoder.failure(error), last=True)
            return
        await self._write(send, b"" if failed else self._encoder.closing(), last=True)

    async def _pass_events_on(self, send: Send) -> bool:
        """Everything the source has; whether it ended with an error (which the encoder has written then)."""
        while events := await self._source.ready_events():
            self._before_encode()
            if data := await self._encoded(events):
                await self._write(send, data)
            if isinstance(events[-1], Failed):
                return True
        return False

    async def _encoded(self, events: list[ChatEvent]) -> bytes:
        if self._encode_beside is None:
            return self._encoder.encode(events)
        return await self._encode_beside(lambda: self._encoder.encode(events))

    async def _write(self, send: Send, data: bytes, *, last: bool = False) -> None:
        async with self._write_lock:
            await send({"type": "http.response.body", "body": data, "more_body": not last})
            self._last_write_s = asyncio.get_running_loop().time()

    async def _pulse(self, send: Send) -> None:
        """A sign of life whenever nothing was written for `keep_alive_s`, however busy or stuck the engine is."""
        clock = asyncio.get_running_loop().time
        while True:
            silent_s = clock() - self._last_write_s
            if silent_s >= self._keep_alive_s:
                await self._write(send, self._encoder.keepalive())
                silent_s = 0.0
            await asyncio.sleep(self._keep_alive_s - silent_s)
