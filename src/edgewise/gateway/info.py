"""Everything that generates nothing: the models of all upstreams, health, versions, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from fastapi import Request
from starlette.responses import PlainTextResponse, Response

import edgewise
from edgewise.core.errors import EdgewiseError, InvalidRequestError
from edgewise.core.keys import KeyRecord
from edgewise.gateway import metrics as metrics_module
from edgewise.gateway.metrics import GatewayMetrics
from edgewise.gateway.parts import Router, Upstream
from edgewise.gateway.profile import ModelCard
from edgewise.protocols.models import anthropic_fields, encode_models
from edgewise.serving.errors import HttpError, JsonResponse
from edgewise.serving.paths import route_path

Handler = Callable[[Request, KeyRecord], Awaitable[Response]]


class Information:
    """`handler` finds who answers a path, if it is one of these."""

    def __init__(self, router: Router, metrics: GatewayMetrics) -> None:
        self._router = router
        self._metrics = metrics
        self._created_s = int(time.time())
        self._handlers: dict[str, tuple[Handler, tuple[str, ...]]] = {
            "/health": (self._health, ("GET", "HEAD")),
            "/v1/health": (self._health, ("GET", "HEAD")),
            "/ping": (self._ping, ("GET", "HEAD", "POST")),
            "/version": (self._version, ("GET",)),
            "/v1/models": (self._models, ("GET",)),
            "/models": (self._models, ("GET",)),
            "/props": (self._props, ("GET",)),
            "/metrics": (self._prometheus, ("GET",)),
        }

    def offer_root(self) -> None:
        """Answer `/` too, where no page does: clients probe it."""
        self._handlers["/"] = (self._root, ("GET", "HEAD"))

    async def _root(self, request: Request, key: KeyRecord) -> Response:
        return PlainTextResponse(f"Edgewise {edgewise.__version__}: a gateway.\n")

    def handler(self, path: str) -> Handler | None:
        if path.startswith("/v1/models/"):
            return _only(("GET",), self._model)
        found = self._handlers.get(path)
        return None if found is None else _only(found[1], found[0])

    async def _health(self, request: Request, key: KeyRecord) -> Response:
        """200 while at least one upstream answers. Says nothing of names: liveness needs no key."""
        upstreams = self._router.upstreams
        num_up = sum(one.healthy for one in upstreams)
        body = {"status": "ok" if num_up else "error", "upstreams": len(upstreams), "upstreams_up": num_up}
        return JsonResponse(body, 200 if num_up else 503)

    async def _ping(self, request: Request, key: KeyRecord) -> Response:
        return Response(status_code=200 if any(one.healthy for one in self._router.upstreams) else 503)

    async def _version(self, request: Request, key: KeyRecord) -> Response:
        return JsonResponse({"version": edgewise.__version__})

    async def _models(self, request: Request, key: KeyRecord) -> Response:
        return JsonResponse(encode_models(list(self._entries())))

    async def _model(self, request: Request, key: KeyRecord) -> Response:
        name = route_path(request.scope).removeprefix("/v1/models/")
        entries = {entry["id"]: entry for entry in self._entries()}
        if name in entries:
            return JsonResponse(entries[name])
        if any(
            one.name == name for one in self._router.upstreams
        ):  # asked by its own name, it answers with its model
            model = self._router.routes(name, affinity="")[0].model
            return JsonResponse({**entries[model], "id": name, "display_name": name})
        raise InvalidRequestError(
            f"The model {name!r} is not served here.", param="model", code="model_not_found"
        )

    def _entries(self) -> Iterator[dict[str, Any]]:
        """Every model once per name, its aliases after it; replicas of one model are one entry that names all who serve it."""
        merged: dict[str, dict[str, Any]] = {}
        for upstream in self._router.upstreams:
            for card in upstream.profile.models:
                for name in (card.id, *card.aliases):
                    if name in merged:
                        _add_server(merged[name], upstream)
                    else:
                        merged[name] = self._entry(name, card, upstream)
        for alias in self._router.aliases:
            with contextlib.suppress(EdgewiseError):  # nobody answers for it now
                model = self._router.routes(alias, affinity="")[0].model
                if model in merged and alias not in merged:
                    merged[alias] = {**merged[model], "id": alias, "display_name": alias}
        yield from merged.values()

    def _entry(self, name: str, card: ModelCard, upstream: Upstream) -> dict[str, Any]:
        """The upstream's own entry with what the gateway knows; clients read the window under several names."""
        limits = {
            "max_model_len": card.window,
            "context_window": card.window,
            "context_length": card.window,
            "max_input_len": card.max_input,
        }
        known = {key: value for key, value in limits.items() if value is not None}
        return {
            "created": self._created_s,
            "owned_by": upstream.name,
            **card.raw,
            **anthropic_fields(name, self._created_s),
            "id": name,
            "object": "model",
            "root": card.id,
            **known,
            "edgewise": {
                "upstreams": [upstream.name] if upstream.healthy else [],
                "kind": upstream.profile.kind.value,
                "aliases": list(card.aliases),
                "loaded": card.loaded,
            },
        }

    async def _props(self, request: Request, key: KeyRecord) -> Response:
        """What clients of llama-server ask: the window of the model that answers by default, or of the one they name."""
        wanted = request.query_params.get("model", "")
        route = self._router.routes(wanted, affinity="")[0]
        cards = route.upstream.profile.models
        card = next((one for one in cards if route.model in (one.id, *one.aliases)), ModelCard(route.model))
        return JsonResponse(
            {
                "model_alias": card.id,
                "model_path": card.id,
                "default_generation_settings": {"n_ctx": card.window},
                "max_input_len": card.max_input,
                "total_slots": route.upstream.max_in_flight or 1,
                "build_info": f"edgewise {edgewise.__version__}",
                "upstream": route.upstream.name,
            }
        )

    async def _prometheus(self, request: Request, key: KeyRecord) -> Response:
        text = await asyncio.to_thread(self._metrics.render)
        return Response(text, media_type=metrics_module.CONTENT_TYPE)


def _add_server(entry: dict[str, Any], upstream: Upstream) -> None:
    names: list[str] = entry["edgewise"]["upstreams"]
    if upstream.healthy and upstream.name not in names:
        names.append(upstream.name)


def _only(methods: tuple[str, ...], handler: Handler) -> Handler:
    async def checked(request: Request, key: KeyRecord) -> Response:
        if request.method not in methods:
            allowed = ", ".join(methods)
            raise HttpError(405, "Method Not Allowed", code="method_not_allowed", headers={"Allow": allowed})
        return await handler(request, key)

    return checked
