"""API keys: `Authorization: Bearer KEY` or `x-api-key: KEY`, compared in constant time. ASGI middleware."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Collection, Iterable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from edgewise.serving.errors import HttpError, error_response
from edgewise.serving.paths import route_path

OPEN_PATHS = frozenset({"/", "/health", "/v1/health", "/ping"})
"""Answered without a key: liveness says nothing about the model or its users."""


_OWNER = "edgewise.owner"


def owner_of(scope: Scope) -> str:
    """Whose request it is: the same for one key's requests and for no other's; "" where no key was asked for."""
    owner: str = scope.get(_OWNER, "")
    return owner


class ApiKeyMiddleware:
    """Answers 401 unless a request names one of `keys`, or a path of `open_paths`. Only digests of the keys are kept."""

    def __init__(self, app: ASGIApp, keys: Sequence[str], open_paths: Collection[str] = OPEN_PATHS) -> None:
        self._app = app
        self._open_paths = open_paths
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or route_path(scope) in self._open_paths:
            await self._app(scope, receive, send)
            return
        if (owner := self._owner(scope["headers"])) is not None:
            await self._app({**scope, _OWNER: owner}, receive, send)
            return
        refusal = HttpError(
            401,
            "Missing or wrong API key: send it as 'Authorization: Bearer KEY' or as 'x-api-key: KEY'.",
            kind="authentication_error",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await error_response(refusal, scope)(scope, receive, send)

    def _owner(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """The first key of a request that is known, as its digest."""
        return next((digest.hex() for key in keys_of(headers) if self._knows(digest := _digest(key))), None)

    def _knows(self, digest: bytes) -> bool:
        """Compares with every key, so that the time taken tells nothing about which one was near."""
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(digest, known)
        return found


def keys_of(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """The keys a request carries, in either spelling; several headers may come together."""
    keys = []
    for name, value in headers:
        if name == b"x-api-key":
            keys.append(value.strip())
        elif name == b"authorization" and value[:7].lower() == b"bearer ":
            keys.append(value[7:].strip())
    return keys


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address. Names other than localhost count as reachable."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
