"""A request to an ASGI application of this process, by the application's own front door: keys, limits and counters hold as for any client."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.types import ASGIApp, Message, Scope

_HELD = 16  # messages that wait to be read, until the application has to
_PATIENCE_S = 2.0


class InProcessReply:
    """An answer whose status is here and whose body is still coming. Close it: what the application does for it then stops."""

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue(_HELD)
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(app, scope))
        self.status = 0
        self.headers: dict[str, str] = {}  # names in lower case

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._messages.put)
        finally:
            with contextlib.suppress(asyncio.QueueFull):
                self._messages.put_nowait(None)

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def begun(self) -> None:
        """Until the status is here."""
        message = await self._messages.get()
        if message is None:
            await self._task
            raise RuntimeError("the application answered nothing")
        self.status = message["status"]
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in message.get("headers", ())
        }

    async def chunks(self) -> AsyncIterator[bytes]:
        while (message := await self._messages.get()) is not None:
            if message["type"] == "http.response.body":
                if piece := message.get("body", b""):
                    yield piece
                if not message.get("more_body", False):
                    return

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.chunks()])

    async def aclose(self) -> None:
        """The application sees its client leave; what has not ended some seconds later is cancelled."""
        self._gone.set()
        patience = asyncio.get_running_loop().time() + _PATIENCE_S
        while not self._task.done():
            with contextlib.suppress(asyncio.QueueEmpty):
                while True:
                    self._messages.get_nowait()
            await asyncio.wait((self._task,), timeout=0.02)
            if asyncio.get_running_loop().time() > patience:
                self._task.cancel()
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await self._task


async def post(app: ASGIApp, like: Scope, path: str, body: Any) -> InProcessReply:
    """POST a JSON body to a path beside that of the request `like`, whose key and host it has. Returns when its status is here."""
    kept = [
        (name, value) for name, value in like["headers"] if name in (b"authorization", b"x-api-key", b"host")
    ]
    encoded = json.dumps(body).encode()  # a model's integers may be longer than orjson takes
    headers = [*kept, (b"content-type", b"application/json"), (b"content-length", str(len(encoded)).encode())]
    whole = like.get("root_path", "") + path
    scope = {
        **like,
        "method": "POST",
        "path": whole,
        "raw_path": whole.encode(),
        "query_string": b"",
        "headers": headers,
    }
    for name in ("route", "endpoint", "path_params", "router", "state"):
        scope.pop(name, None)
    if "state" in like:
        scope["state"] = dict(like["state"])
    reply = InProcessReply(app, scope, encoded)
    try:
        await reply.begun()
    except BaseException:
        await reply.aclose()
        raise
    return reply
