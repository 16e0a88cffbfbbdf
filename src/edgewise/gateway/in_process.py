"""An engine in the gateway's own process: an ASGI application, asked without a socket. The command line injects it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp, Scope

from edgewise.gateway.parts import NotBegunError, Reply, Transport
from edgewise.serving.in_process import InProcessReply

_HOST = "this-process.invalid"  # a name that no machine can have
ADDRESS = f"http://{_HOST}"
"""The URL of the upstream that is the application."""


class InProcessTransport:
    """Requests to `ADDRESS` go to `app`, all others `outside`. Event loop only."""

    def __init__(self, app: ASGIApp, outside: Transport) -> None:
        self._app = app
        self._outside = outside

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, timeout: float | None
    ) -> Reply:
        """Raises NotBegunError where no status comes in time, or at all."""
        if not url.startswith(ADDRESS):
            return await self._outside.send(method, url, headers, body, timeout=timeout)
        reply = InProcessReply(self._app, _scope(method, url, headers, body), body)
        try:
            async with asyncio.timeout(timeout):
                await reply.begun()
        except BaseException as error:
            await reply.aclose()
            if isinstance(error, Exception):
                raise NotBegunError(f"{url}: {str(error) or 'no answer'}") from error
            raise
        return reply


def _scope(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Scope:
    parts = urlsplit(url)
    given = {**headers, "host": _HOST, "content-length": str(len(body))}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [
            (name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in given.items()
        ],
        "client": None,
        "server": (_HOST, None),
    }
