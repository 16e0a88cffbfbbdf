"""The shortest way to an upstream: HTTP/1.1 over asyncio with httptools. A stand-in that tests and measurements of forwarding use."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlsplit

import httptools

from edgewise.gateway.parts import BrokenReplyError, NotBegunError

_HIGH_WATER = 256 << 10


class _Connection(asyncio.Protocol):
    """One connection, one exchange at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.closed = False
        self.begin()

    def begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: deque[bytes] = deque()
        self.size = 0
        self.complete = False
        self.reusable = False
        self._news: asyncio.Future[None] | None = None
        self._head = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        framed = "content-length" in self.headers or "transfer-encoding" in self.headers
        if self._head and not framed:
            self.complete = True
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def news(self) -> None:
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._head = True

    def on_body(self, body: bytes) -> None:
        self.pieces.append(body)
        self.size += len(body)
        if self.size > _HIGH_WATER:
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        self.complete = True
        self.reusable = self._parser.should_keep_alive()


class PlainReply:
    def __init__(self, connection: _Connection, idle: list[_Connection]) -> None:
        self._connection = connection
        self._idle = idle
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        connection = self._connection
        while True:
            if connection.pieces:
                data = (
                    connection.pieces.popleft()
                    if len(connection.pieces) == 1
                    else b"".join(connection.pieces)
                )
                connection.pieces.clear()
                if connection.size > _HIGH_WATER:
                    connection.transport.resume_reading()
                connection.size = 0
                yield data
            elif connection.complete:
                return
            elif connection.closed:
                raise BrokenReplyError("the connection was closed in the middle of an answer")
            else:
                await connection.news()

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.chunks()])

    async def aclose(self) -> None:
        connection = self._connection
        if connection.complete and connection.reusable and not connection.closed and not connection.pieces:
            self._idle.append(connection)
        elif not connection.closed:
            connection.transport.abort()


class PlainTransport:
    def __init__(self) -> None:
        self._idle: dict[tuple[str, int], list[_Connection]] = {}

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, timeout: float | None
    ) -> PlainReply:
        parts = urlsplit(url)
        origin = (parts.hostname or "", parts.port or 80)
        idle = self._idle.setdefault(origin, [])
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\n{lines}content-length: {len(body)}\r\n\r\n"
        connection, fresh = await self._connection(origin, idle, url)
        connection.begin()
        connection.transport.write(head.encode("latin-1") + body)
        try:
            while not connection.status and not connection.closed:
                await connection.news()
        except asyncio.CancelledError:
            connection.transport.abort()
            raise
        if not connection.status:
            if not fresh:  # it was closed while it idled
                return await self.send(method, url, headers, body, timeout=timeout)
            raise NotBegunError(f"{url}: closed before it answered")
        return PlainReply(connection, idle)

    async def _connection(
        self, origin: tuple[str, int], idle: list[_Connection], url: str
    ) -> tuple[_Connection, bool]:
        while idle:
            connection = idle.pop()
            if not connection.closed:
                return connection, False
        try:
            loop = asyncio.get_running_loop()
            with contextlib.suppress(AttributeError):
                _, made = await loop.create_connection(_Connection, *origin)
            return made, True
        except OSError as error:
            raise NotBegunError(f"{url}: {error}") from error
