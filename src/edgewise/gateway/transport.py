"""The HTTP client: HTTP/1.1 over asyncio, parsed by httptools. docs/decisions/0002-gateway-http-client.md says why it is our own.

It does what forwarding needs and nothing else: bodies whole on the way out, as they come on the way in, connections kept and reused,
TLS for https. No redirects, no cookies, no proxies: what an upstream says is passed on as it is, but for a compression that nobody asked
for. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from edgewise.core.errors import ConfigError
from edgewise.gateway.coding import CODINGS, Decoder
from edgewise.gateway.connection import Connection
from edgewise.gateway.parts import BrokenReplyError, NotBegunError

_MAX_IDLE = 64  # connections kept for one server
_IDLE_S = 4.0  # less than the 5 s after which uvicorn closes a connection, so that we close first
_MAX_WHOLE_BYTES = 128 << 20
_CONNECT_S = 5.0


class Origin(NamedTuple):
    secure: bool
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class _Wire:
    """A request as it is sent, and where to."""

    origin: Origin
    url: str
    data: bytes


class HttpReply:
    """An answer whose status has come. Iterate over `chunks` or `read` it, once, then close it."""

    def __init__(self, connection: Connection, transport: HttpTransport, wire: _Wire) -> None:
        self._connection = connection
        self._transport = transport
        self._wire = wire
        self._given_back = False
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes, decompressed. Raises BrokenReplyError where it ends early or nothing came for the request's timeout."""
        if self.headers.get("content-encoding") not in CODINGS:
            async for piece in self._chunks():
                yield piece
            return
        decoder = Decoder()
        async for piece in self._chunks():
            for part in decoder.feed(piece):
                yield part
        decoder.close()

    async def _chunks(self) -> AsyncIterator[bytes]:
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
        pieces, size = [], 0
        async for piece in self.chunks():
            pieces.append(piece)
            if (size := size + len(piece)) > _MAX_WHOLE_BYTES:
                raise BrokenReplyError(f"an answer in one piece has more than {_MAX_WHOLE_BYTES} bytes")
        return b"".join(pieces)

    async def aclose(self) -> None:
        """Let go. The connection is kept only if the answer was complete; closing it is how an upstream learns that nobody reads."""
        if not self._given_back:
            self._given_back = True
            self._transport.give_back(self._connection, self._wire.origin)


class HttpTransport:
    """Sends requests, keeps connections. Event loop only."""

    def __init__(self, *, connect_timeout_s: float = _CONNECT_S) -> None:
        self._idle: dict[Origin, list[Connection]] = {}
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
        self, connection: Connection, wire: _Wire, timeout: float | None, *, fresh: bool
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

    def _kept(self, origin: Origin) -> Connection | None:
        idle = self._idle.get(origin, [])
        oldest_s = asyncio.get_running_loop().time() - _IDLE_S
        while idle:
            connection = idle.pop()
            usable = not connection.closed and not connection.surplus
            if usable and connection.idle_since_s >= oldest_s:
                return connection
            connection.abort()
        return None

    async def _connect(self, wire: _Wire) -> Connection:
        origin = wire.origin
        context = _tls() if origin.secure else None
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    Connection, origin.host, origin.port, ssl=context
                )
        except TimeoutError:
            raise NotBegunError(f"{wire.url}: no connection within {self._connect_timeout_s:g} s") from None
        except OSError as error:  # TLS errors are among them
            refused = isinstance(error, ConnectionError) and error.errno
            reason = os.strerror(error.errno) if refused and error.errno else str(error)
            raise NotBegunError(f"{wire.url}: {reason}") from error
        return connection

    def give_back(self, connection: Connection, origin: Origin) -> None:
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


def _end_of(connection: Connection) -> str:
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
