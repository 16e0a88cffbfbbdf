"""One connection to an upstream, one exchange at a time: bytes in, status, headers and pieces of the body out. Event loop only."""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

_HIGH_WATER_BYTES = 256 << 10
_MAX_HEAD_BYTES = 64 << 10


class Connection(asyncio.Protocol):
    """`begin` an exchange, `write` its request, then wait for `news` and look: `has_head`, `take`, `complete`, `closed`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._loop = asyncio.get_running_loop()
        self._limit_s = 0.0
        self._heard_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.closed = False
        self.idle_since_s = 0.0
        self.begin(None)

    def begin(self, timeout_s: float | None) -> None:
        """Forget the exchange before. The next one is given up after so many seconds of silence."""
        self.rest()
        if timeout_s is not None:
            self._limit_s = timeout_s
            self._heard_s = self._loop.time()
            self._timer = self._loop.call_later(timeout_s, self._check_silence)
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes = 0
        self._news: asyncio.Future[None] | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_head = False
        self.has_bytes = False
        self.complete = False
        self.reusable = False
        self.surplus = False
        self.silent = False
        self.fault = ""

    def rest(self) -> None:
        """Nothing is expected of it now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_silence(self) -> None:
        """One timer an exchange, and not one a piece: it looks how long the silence is, and comes again when that may be too long.

        Waiting for our own reader is no silence.
        """
        now_s = self._loop.time()
        if self._paused or self._pieces:
            self._heard_s = now_s
        left_s = self._heard_s + self._limit_s - now_s
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check_silence)
            return
        self._timer = None
        self.silent = True
        self._fail(f"silent for {self._limit_s:g} s")
        self._wake()

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def abort(self) -> None:
        self.closed = True
        self.rest()
        if self._transport is not None:
            self._transport.abort()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods only

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        self.has_bytes = True
        if not self.has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("it wants to speak another protocol")
        except httptools.HttpParserError as error:
            self._fail(f"it is no HTTP: {error}")
        if not self.has_head and self._head_bytes > _MAX_HEAD_BYTES:
            self._fail("its headers do not end")
        self._wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self.rest()
        framed = "content-length" in self.headers or "transfer-encoding" in self.headers
        if self.has_head and not framed and error is None and not self.fault:
            self.complete = True  # the connection's end is the body's
        self._wake()

    def _fail(self, fault: str) -> None:
        self.fault = fault
        self.abort()

    # the parser's side

    def on_message_begin(self) -> None:
        """An answer that nobody asked for spoils the connection, and must not be taken for the next request's."""
        self.surplus = self.complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.surplus:
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.surplus:
            return
        if 100 <= status < 200:  # "Continue" and its like: the answer is still to come
            self.headers = {}
            return
        self.status = status
        self.has_head = True

    def on_body(self, body: bytes) -> None:
        if self.surplus:
            return
        self._pieces.append(body)
        self._size += len(body)
        if self._size > _HIGH_WATER_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self.has_head and not self.surplus:
            self.complete = True
            self.rest()
            self.reusable = self._parser.should_keep_alive()

    # the reader's side

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def news(self) -> None:
        """Until something has come, or the connection is gone."""
        self._news = self._loop.create_future()
        try:
            await self._news
        finally:
            self._news = None

    def take(self) -> bytes:
        """All that has come of the body and was not taken."""
        if not self._pieces:
            return b""
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._paused and not self.closed and self._transport is not None:
            self._paused = False
            self._heard_s = self._loop.time()
            self._transport.resume_reading()
        return data
