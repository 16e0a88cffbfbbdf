"""Asking an upstream about itself: small requests, JSON answers. Event loop only."""

from __future__ import annotations

from typing import Any

import orjson

from edgewise.gateway.parts import Transport
from edgewise.gateway.upstream import Upstream

ABSENT = (404, 405, 501)
"""Statuses of what a server does not have."""
_DENIED = (401, 403)


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def object_of(body: bytes) -> dict[str, Any] | None:
    """A JSON object, None for anything else."""
    value = _json(body)
    return value if isinstance(value, dict) else None


class Ask:
    """Questions to one upstream. Everything raises NotBegunError or BrokenReplyError where there is no whole answer."""

    def __init__(self, transport: Transport, upstream: Upstream, *, timeout_s: float) -> None:
        self._transport = transport
        self._upstream = upstream
        self._timeout_s = timeout_s

    async def get(self, path: str) -> Any:
        """The JSON of an answer of success, else None."""
        status, body = await self.send("GET", path)
        return _json(body) if status == 200 else None

    async def get_object(self, path: str) -> dict[str, Any]:
        """Likewise, but what is no object counts as an empty one."""
        value = await self.get(path)
        return value if isinstance(value, dict) else {}

    async def offers(self, path: str) -> bool:
        """Whether a path takes POST. It is sent a body that asks for nothing, names no model, and is refused wherever it is read."""
        status, _ = await self.send("POST", path, b"{}")
        return status not in ABSENT and status not in _DENIED

    async def status(self, path: str) -> int:
        return (await self.send("GET", path))[0]

    async def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        headers = {**({"content-type": "application/json"} if body else {}), **self._upstream.headers}
        reply = await self._transport.send(
            method, self._upstream.url + path, headers, body, timeout=self._timeout_s
        )
        try:
            return reply.status, await reply.read()
        finally:
            await reply.aclose()
