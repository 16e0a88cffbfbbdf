"""The HTTP client: HTTP/1.1 over asyncio, parsed by httptools. docs/decisions/0002-gateway-http-client.md says why it is our own.

It does what forwarding needs and nothing else: bodies whole on the way out, as they come on the way in, connections kept and reused,
TLS for https. No redirects, no cookies, no decompression, no proxies: what an upstream says is passed on as it is. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from edgewise.core.errors import ConfigError
from edgewise.gateway.parts import BrokenReplyError, NotBegunError

_HIGH_WATER_BYTES = 256 << 10
_MAX_HEAD_BYTES = 64 << 10
_MAX_IDLE = 64  # connections kept for one server
_IDLE_S = 4.0  # less than the 5 s after which uvicorn closes a connection, so that we close first
_CONNECT_S = 5.0


class Origin(NamedTuple):
    secure: bool
    host: str
    port: int


class _Connection(asyncio.Protocol):
    """One connection, one exchange at a time."""

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


@dataclass(frozen=True, slots=True)
class _Wire:
    """A request as it is sent, and where to."""

    origin: Origin
    url: str
    data: bytes


class HttpReply:
    """An answer whose status has come. Iterate over `chunks` or `read` it, once, then close it."""

    def __init__(self, connection: _Connection, transport: HttpTransport, wire: _Wire) -> None:
        self._connection = connection
        self._transport = transport
        self._wire = wire
        self._given_back = False
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises BrokenReplyError where it ends early or nothing came for the request's timeout."""
        connection = self._connection
        while True:
            if data := connection.take():
                yield data
            elif connection.complete:
                return
            elif connection.closed:
                raise BrokenReplyError(f"{self._wire.url}: {_end_of(connection)}, in the middle of an answer")
            else:
                await connection.news()

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.chunks()])

    async def aclose(self) -> None:
        """Let go. The connection is kept only if the answer was complete; closing it is how an upstream learns that nobody reads."""
        if not self._given_back:
            self._given_back = True
            self._transport.give_back(self._connection, self._wire.origin)


class HttpTransport:
    """Sends requests, keeps connections. Event loop only."""

    def __init__(self, *, connect_timeout_s: float = _CONNECT_S) -> None:
        self._idle: dict[Origin, list[_Connection]] = {}
        self._connect_timeout_s = connect_timeout_s

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, timeout: float | None
    ) -> HttpReply:
        """Until the status has come. `timeout`: seconds of silence, here and in the answer.

        Raises NotBegunError where there was no status: not reached, refused, let go, silent, or no HTTP. A kept connection that turns out to
        have been closed meanwhile is replaced without a word.
        """
        wire = _wire_of(method, url, headers, body)
        while (kept := self._kept(wire.origin)) is not None:
            with contextlib.suppress(_StaleError):
                return await self._exchange(kept, wire, timeout, fresh=False)
        return await self._exchange(await self._connect(wire), wire, timeout, fresh=True)

    async def _exchange(
        self, connection: _Connection, wire: _Wire, timeout: float | None, *, fresh: bool
    ) -> HttpReply:
        connection.begin(timeout)
        connection.write(wire.data)
        try:
            while not connection.has_head and not connection.closed:
                await connection.news()
        except BaseException:
            connection.abort()
            raise
        if not connection.has_head:
            if connection.silent:
                raise SilentError(f"{wire.url}: no answer for {timeout:g} s")
            if not fresh and not connection.has_bytes:
                raise _StaleError
            raise NotBegunError(f"{wire.url}: {_end_of(connection)}, before it answered")
        return HttpReply(connection, self, wire)

    def _kept(self, origin: Origin) -> _Connection | None:
        idle = self._idle.get(origin, [])
        oldest_s = asyncio.get_running_loop().time() - _IDLE_S
        while idle:
            connection = idle.pop()
            usable = not connection.closed and not connection.surplus
            if usable and connection.idle_since_s >= oldest_s:
                return connection
            connection.abort()
        return None

    async def _connect(self, wire: _Wire) -> _Connection:
        origin = wire.origin
        context = _tls() if origin.secure else None
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    _Connection, origin.host, origin.port, ssl=context
                )
        except TimeoutError:
            raise NotBegunError(f"{wire.url}: no connection within {self._connect_timeout_s:g} s") from None
        except OSError as error:  # TLS errors are among them
            refused = isinstance(error, ConnectionError) and error.errno
            reason = os.strerror(error.errno) if refused and error.errno else str(error)
            raise NotBegunError(f"{wire.url}: {reason}") from error
        return connection

    def give_back(self, connection: _Connection, origin: Origin) -> None:
        idle = self._idle.setdefault(origin, [])
        now_s = asyncio.get_running_loop().time()
        for old in [one for one in idle if one.closed or one.idle_since_s < now_s - _IDLE_S]:
            idle.remove(old)
            old.abort()
        whole = connection.complete and connection.reusable
        kept = whole and not connection.closed and not connection.surplus
        if not kept or len(idle) >= _MAX_IDLE:
            connection.abort()
            return
        connection.rest()
        connection.take()
        connection.idle_since_s = now_s
        idle.append(connection)

    async def aclose(self) -> None:
        """Close the connections that nobody uses."""
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        self._idle.clear()


class SilentError(NotBegunError):
    """An upstream took the request and said nothing for too long."""


class _StaleError(Exception):
    """A kept connection had been closed by the other side."""


def _end_of(connection: _Connection) -> str:
    return connection.fault or "the connection was closed"


def _wire_of(method: str, url: str, headers: Mapping[str, str], body: bytes) -> _Wire:
    origin, host = origin_of(url)
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = "".join(f"{_plain(name)}: {_plain(value)}\r\n" for name, value in headers.items())
    head = f"{method} {_plain(target)} HTTP/1.1\r\nhost: {host}\r\naccept-encoding: identity\r\n{lines}"
    length = f"content-length: {len(body)}\r\n" if body or method != "GET" else ""
    return _Wire(origin, url, f"{head}{length}\r\n".encode("latin-1", "replace") + body)


def _plain(text: str) -> str:
    """Header text cannot end its line: what a client sends must not become a request of its own."""
    return text.replace("\r", " ").replace("\n", " ")


@functools.lru_cache(256)
def origin_of(url: str) -> tuple[Origin, str]:
    """Where a URL leads, and its Host header. Raises ConfigError for what is no http or https address."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r} is no address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{url!r} is no address", hint="for example http://127.0.0.1:8000")
    secure = parts.scheme == "https"
    return Origin(secure, parts.hostname, port or (443 if secure else 80)), parts.netloc.rpartition("@")[2]


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
