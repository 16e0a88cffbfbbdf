"""The application: one address, the APIs, and nothing else. Plain ASGI, since every request passes here and most are only passed on.

A path that is not in the table is 404 and reaches no upstream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable

from fastapi import Request
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response
from starlette.routing import Router as PageRouter
from starlette.types import ASGIApp, Receive, Scope, Send

from edgewise.core.keys import KeyRecord
from edgewise.gateway.attempts import Attempts
from edgewise.gateway.calls import Call, read_call
from edgewise.gateway.counting import Counter
from edgewise.gateway.downstream import Downstream
from edgewise.gateway.forward import Forwarder
from edgewise.gateway.info import Information
from edgewise.gateway.keys import ANYBODY
from edgewise.gateway.limits import KeyGate
from edgewise.gateway.metrics import GatewayMetrics
from edgewise.gateway.parts import GatewayParts
from edgewise.gateway.planning import Planner
from edgewise.gateway.profile import Api
from edgewise.gateway.replies import WholeAnswers
from edgewise.gateway.side import TOKENIZING, Side
from edgewise.gateway.stored import KeptResponses
from edgewise.serving.auth import OPEN_PATHS, keys_of
from edgewise.serving.bodies import decode_json, read_body
from edgewise.serving.errors import ClientGoneError, HttpError, error_response
from edgewise.serving.paths import RootPathMiddleware, route_path
from edgewise.serving.response_store import ResponseStore
from edgewise.serving.strangers import StrangersMiddleware

logger = logging.getLogger("edgewise.gateway")

_INLINE_BYTES = 256 << 10

_APIS = {api.value: api for api in Api} | {
    "/chat/completions": Api.CHAT,
    "/completions": Api.COMPLETIONS,
    "/responses": Api.RESPONSES,
    "/embeddings": Api.EMBEDDINGS,
}

_KEPT = ("/v1/responses/", "/responses/")

Handler = Callable[[Request, KeyRecord], Awaitable[Response]]


def create_gateway(parts: GatewayParts) -> ASGIApp:
    """The gateway as an ASGI application."""
    app: ASGIApp = Gateway(parts)
    options = parts.options
    app = StrangersMiddleware(
        app,
        hosts=options.allowed_hosts,
        origins=options.allowed_origins,
        asks_for_keys=lambda: parts.keys.required,
    )
    if options.allowed_hosts:
        app = TrustedHostMiddleware(app, allowed_hosts=list(options.allowed_hosts))
    if options.allowed_origins:
        app = CORSMiddleware(
            app,
            allow_origins=list(options.allowed_origins),
            allow_methods=["GET", "POST", "HEAD", "DELETE"],
            allow_headers=["*"],
            expose_headers=["x-edgewise-upstream", "x-edgewise-model", "x-edgewise-dropped-fields"],
        )
    return RootPathMiddleware(app, options.root_path.rstrip("/")) if options.root_path else app


class Gateway:
    """The application itself. Event loop only."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._keys = parts.keys
        self._options = parts.options
        self._gate = KeyGate()
        self.metrics = GatewayMetrics()
        store = ResponseStore(parts.options.max_stored_responses, parts.options.max_stored_response_bytes)
        self._kept = KeptResponses(store)
        self._side = Side(parts.router, parts.transport, parts.options)
        planner = Planner(self._kept)
        attempts = Attempts(parts, planner, self.metrics)
        self.forwarder = Forwarder(
            attempts, WholeAnswers(self._side), Counter(self._side), parts.options, self.metrics
        )
        self._info = Information(parts.router, self.metrics)
        if all(getattr(route, "path", None) != "/" for route in parts.routes):
            self._info.offer_root()
        self._pages = PageRouter(list(parts.routes), default=_no_such_path)
        upstreams = parts.router
        self.metrics.watch("waiting", "Requests in the queue of an upstream", attempts.waiting)
        self.metrics.watch(
            "in_flight",
            "Requests an upstream is answering",
            lambda: {one.name: one.in_flight for one in upstreams.upstreams},
        )
        self.metrics.watch(
            "upstream_up",
            "Whether an upstream answers",
            lambda: {one.name: float(one.healthy) for one in upstreams.upstreams},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._answer({**scope, "app": self}, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            for start in self._parts.startup:
                await start()
        except Exception as error:
            logger.error("the gateway could not start: %s", error, exc_info=error)
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for stop in self._parts.shutdown:
            await stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = route_path(scope)
        try:
            api = _APIS.get(path)
            if api is not None:
                await self._generate(api, scope, receive, send)
                return
            handler = self._handler(path, scope["method"])
            if handler is None:
                await self._pages(scope, receive, send)
                return
            key = ANYBODY if path in OPEN_PATHS else self._key_of(scope)
            response = await handler(Request(scope, receive), key)
        except ClientGoneError:
            return
        except Exception as error:
            response = error_response(error, scope)
        await response(scope, receive, send)

    def _handler(self, path: str, method: str) -> Handler | None:
        """Who answers what is no generation."""
        if path.startswith(_KEPT):
            return self._kept.answer
        if path in TOKENIZING and method == "POST":
            return self._side.tokenize
        return self._info.handler(path)

    def _key_of(self, scope: Scope) -> KeyRecord:
        """Who asks. Raises HttpError 401."""
        for key in keys_of(scope["headers"]):
            if (record := self._keys.lookup(key.decode("latin-1"))) is not None:
                return record
        if not self._keys.required:
            return ANYBODY
        raise HttpError(
            401,
            "Missing or wrong API key: send it as 'Authorization: Bearer KEY' or as 'x-api-key: KEY'.",
            kind="authentication_error",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )

    async def _generate(self, api: Api, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            raise HttpError(405, "Method Not Allowed", code="method_not_allowed", headers={"Allow": "POST"})
        key = self._key_of(scope)
        self._gate.enter(key)
        try:
            call = await self._read(api, Request(scope, receive), key)
            await self._while_client_stays(call, Downstream(receive, send), scope)
        finally:
            self._gate.leave(key)

    async def _read(self, api: Api, request: Request, key: KeyRecord) -> Call:
        options = self._options
        raw = await read_body(request, max_bytes=options.max_body_bytes, timeout_s=options.body_timeout_s)
        if len(raw) <= _INLINE_BYTES:
            body = decode_json(raw)
        else:
            body = await asyncio.to_thread(decode_json, raw)
        kept = self._kept.of(key)
        return read_call(
            api,
            raw,
            body,
            request.scope["headers"],
            key,
            f"req_{uuid.uuid4().hex}",
            earlier=lambda response_id: entry.items if (entry := kept.get(response_id)) else (),
        )

    async def _while_client_stays(self, call: Call, down: Downstream, scope: Scope) -> None:
        """Answer, and stop at once when the client leaves: what its upstream was doing for it is closed then."""
        answering = asyncio.create_task(self.forwarder.answer(call, down, scope))
        watching = asyncio.create_task(down.until_gone())
        with contextlib.suppress(
            asyncio.CancelledError
        ):  # the server stops: the answer's own end tells the client
            await asyncio.wait((answering, watching), return_when=asyncio.FIRST_COMPLETED)
        watching.cancel()
        if not answering.done():
            answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answering


async def _no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    error = HttpError(404, "There is no such path here.", code="not_found")
    await error_response(error, scope)(scope, receive, send)
