"""Reading a page that a model asked for, which may be anything: https only, public addresses only, checked after the name was resolved and
connected to exactly as checked; every redirect looked at anew; bounded in time, size and kind; no cookie, key or referrer goes along.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import ipaddress
import re
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit, urlunsplit

import httpx

from edgewise.core.errors import EdgewiseError
from edgewise.web.search.limits import Limits
from edgewise.web.search.page_text import Page, read_html, tidy
from edgewise.web.search.sources import host_of

_KINDS = ("text/html", "application/xhtml+xml", "text/plain", "text/markdown")
_CHARSETS = re.compile(
    r"utf-8|utf-16(-[lb]e)?|ascii|iso8859-\d+|cp(125\d|866|874|932|936|949|950)|koi8-[ru]|gb2312|gbk|gb18030|big5|big5hkscs"
    r"|shift_jis|euc_jp|euc_kr|iso2022_jp|mac-roman|mac-cyrillic|tis-620"
)
"""Those of pages, by their codecs' names. Some of Python's others take time in the square of a text's length."""
_REDIRECTS = (301, 302, 303, 307, 308)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SPECIAL = tuple(
    ipaddress.ip_network(one)
    for one in ("64:ff9b:1::/48", "2001::/23", "3fff::/20", "5f00::/16", "fec0::/10", "192.88.99.0/24")
)
"""Of the registries of special addresses (IANA, RFC 6890), those that some version of Python counts as global."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str], Awaitable[list[str]]]
"""A host's addresses. Raises OSError."""


class FetchError(EdgewiseError):
    """A page that is not read, and why."""


async def resolve(host: str) -> list[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(host, 443, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


@dataclass(frozen=True, slots=True)
class Fetched:
    url: str  # where it was found in the end
    page: Page


class Fetcher:
    """Reads pages of the hosts it is given. `transport` sends requests to addresses; tests bring their own."""

    def __init__(
        self, limits: Limits, resolve: Resolve = resolve, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._limits = limits
        self._resolve = resolve
        self._transport = transport

    async def read(self, url: str, may: Callable[[str], bool]) -> Fetched:
        """One page. `may`: whether a host may be read at all; asked for every redirect too. Raises FetchError."""
        try:
            async with asyncio.timeout(self._limits.page_timeout_s):
                return await self._read(url, may)
        except TimeoutError:
            raise FetchError(f"{url} did not come within {self._limits.page_timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise FetchError(f"{url} cannot be read ({type(error).__name__})") from error

    async def _read(self, url: str, may: Callable[[str], bool]) -> Fetched:
        for _ in range(self._limits.redirects + 1):
            checked = check_url(url)
            if not may(checked.host):
                raise FetchError(f"{checked.host} was neither found by a search nor named by the user")
            address = await self._public_address(checked.host)
            async with self._client() as client, _asked(client, checked, address) as response:
                if response.status_code in _REDIRECTS and (target := response.headers.get("location")):
                    url = urljoin(url, target)
                    continue
                return Fetched(url, await self._page(url, response))
        raise FetchError(f"{url}: more than {self._limits.redirects} redirects")

    def _client(self) -> httpx.AsyncClient:
        """One for each page: no cookie of one site meets another. What the environment says of proxies and passwords is not asked."""
        transport = None if self._transport is None else _Kept(self._transport)
        return httpx.AsyncClient(transport=transport, follow_redirects=False, trust_env=False)

    async def _public_address(self, host: str) -> Address:
        """All of a name's addresses have to be public: which one is connected to must make no difference."""
        try:
            found = [ipaddress.ip_address(text.partition("%")[0]) for text in await self._resolve(host)]
        except (OSError, ValueError) as error:
            raise FetchError(f"{host} has no address") from error
        if not found:
            raise FetchError(f"{host} has no address")
        for address in found:
            if not is_public(address):
                raise FetchError(f"{host} is not a public address")
        return found[0]

    async def _page(self, url: str, response: httpx.Response) -> Page:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code != 200:
            raise FetchError(f"{url} answered {response.status_code}")
        if kind not in _KINDS:
            raise FetchError(f"{url} is {kind or 'of no stated kind'}, not a page of text")
        body = b""
        async for piece in _decoded(response):
            body += piece
            if len(body) > self._limits.page_bytes:
                raise FetchError(f"{url} is larger than {self._limits.page_bytes >> 20} MiB")
        charset = response.charset_encoding or ""
        # 2 MiB take a second: others are served meanwhile
        return await asyncio.to_thread(
            _read, body, charset, url, plain=kind in ("text/plain", "text/markdown")
        )


def _read(body: bytes, charset: str, url: str, *, plain: bool) -> Page:
    try:
        known = _CHARSETS.fullmatch(codecs.lookup(charset).name) is not None
    except (LookupError, ValueError):
        known = False
    text = body.decode(charset if known else "utf-8", errors="replace")
    return Page("", tidy(text)) if plain else read_html(text, url)


class _Kept(httpx.AsyncBaseTransport):
    """A transport that outlives the clients which use it."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._inner.handle_async_request(request)


@dataclass(frozen=True, slots=True)
class _Checked:
    host: str
    path: str  # with its query


def check_url(url: str) -> _Checked:
    """An address as it may be read: https, its usual port, a name, nothing more. Raises FetchError."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise FetchError(f"{url!r} is no address") from error
    if parts.scheme != "https":
        raise FetchError(f"{url!r} is not an https address")
    if parts.username is not None or parts.password is not None:
        raise FetchError("an address must hold no name or password")
    if port not in (None, 443):
        raise FetchError(f"{url!r} names a port")
    if not (host := host_of(url)):
        raise FetchError(f"{url!r} names no host")
    return _Checked(host, urlunsplit(("", "", parts.path or "/", parts.query, "")))


def _asked(
    client: httpx.AsyncClient, checked: _Checked, address: Address
) -> contextlib.AbstractAsyncContextManager[httpx.Response]:
    """A request to the checked address, and for the host by TLS and by HTTP."""
    at = f"[{address}]" if address.version == 6 else str(address)
    return client.stream(
        "GET",
        f"https://{at}{checked.path}",
        headers={
            "host": checked.host,
            "user-agent": "Mozilla/5.0 (compatible; Edgewise)",
            "accept": ", ".join(_KINDS),
            "accept-encoding": "gzip, deflate",
        },
        extensions={"sni_hostname": checked.host},
    )


def is_public(address: Address) -> bool:
    """Whether an address leads outside. Those that carry an IPv4 address inside are as public as that one."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _NAT64:
            inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if int(address) >> 32 == 0:  # ::a.b.c.d
            return False
        if not all(is_public(one) for one in inner if one is not None):
            return False
        if address.ipv4_mapped is not None or address in _NAT64:
            return True
    return address.is_global and not address.is_multicast and not any(address in one for one in _SPECIAL)


async def _decoded(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body in steps that are small however much a piece of it holds once it is decompressed."""
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("", "identity"):
        async for piece in response.aiter_raw():
            yield piece
        return
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise FetchError(f"its coding {coding!r} was not asked for")
    unpack = zlib.decompressobj(47)  # gzip or zlib, by its head
    async for piece in response.aiter_raw():
        try:
            yield unpack.decompress(piece, 1 << 16)
            while unpack.unconsumed_tail:
                yield unpack.decompress(unpack.unconsumed_tail, 1 << 16)
        except zlib.error as error:
            raise FetchError("its compressed body is damaged") from error
