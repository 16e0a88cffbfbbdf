"""Web pages of strangers, kept from a server that asks for no key: what a browser may reach, any page in it may try to reach.

A page can lead a name of its own to 127.0.0.1 once it is loaded (DNS rebinding), and can post to any address without reading the answer.
So requests of browsers are answered only under names that no stranger can own, or that were allowed; programs are not looked at.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from edgewise.serving.errors import HttpError, error_response

_OWN_ENDINGS = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
"""Names below these are given by the machine or the network it stands in, and by nobody outside."""


class StrangersMiddleware:
    """Answers 403 to requests of browsers from elsewhere, while `asks_for_keys` says no. `hosts` and `origins`: those that are
    allowed besides ("*": all)."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        asks_for_keys: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app = app
        self._asks_for_keys = asks_for_keys
        self._hosts = frozenset(hosts)
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = ""
        if scope["type"] == "http" and not self._asks_for_keys():
            fault = self._fault(Headers(scope=scope))
        if not fault:
            await self._app(scope, receive, send)
            return
        refusal = HttpError(403, fault, kind="permission_error", code="foreign_page")
        await error_response(refusal, scope)(scope, receive, send)

    def _fault(self, headers: Headers) -> str:
        """What is wrong with a browser's request, or "". Browsers call themselves Mozilla, and name a page's origin when it posts."""
        origin, host = headers.get("origin"), headers.get("host", "")
        if origin is not None and not self._is_known(origin, host):
            return f"Pages of {origin!r} may not use this server; --cors-origin allows them."
        name = _name_of(f"//{host}")
        browser = origin is not None or headers.get("user-agent", "").startswith("Mozilla/")
        if browser and not self._hosts and (name is None or not is_own_name(name)):
            return f"This server is not known as {host!r} to browsers; --allowed-host allows that name, and so does an API key."
        return ""

    def _is_known(self, origin: str, host: str) -> bool:
        """Origins that are no web page's, such as an editor's or an extension's, are programs'."""
        if "*" in self._origins or origin in self._origins:
            return True
        if origin == "null":
            return False
        scheme, _, place = origin.partition("://")
        if scheme not in ("http", "https") or place == host:
            return True
        name = _name_of(origin)
        return name is not None and is_own_name(name)


def _name_of(address: str) -> str | None:
    """The host's name in an address, "" where it has none; None for what is no address."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return None


def is_own_name(name: str) -> bool:
    """Whether a host's name can only be this machine's or its own network's: an address, localhost, a name without a dot, `jetson.local`."""
    name = name.rstrip(".").lower()
    if "." not in name or name.endswith(_OWN_ENDINGS):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
