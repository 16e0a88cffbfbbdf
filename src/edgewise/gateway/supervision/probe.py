"""Asking an engine that comes up: whether it answers, what its model is called, and for the first token. Event loop only."""

from __future__ import annotations

import asyncio
from typing import Any, assert_never

import orjson

from edgewise.core.engines import EngineKind, Launch
from edgewise.gateway.asking import Ask
from edgewise.gateway.config import UpstreamConfig
from edgewise.gateway.kinds import kind_of
from edgewise.gateway.parts import BrokenReplyError, NotBegunError, Transport
from edgewise.gateway.profile import Api, Kind, ModelCard
from edgewise.gateway.supervision.errors import EngineStartError
from edgewise.gateway.upstream import CircuitBreaker, Upstream

_PAUSE_S = 0.25
_ASK_S = 5.0
_BUSY = (429, 503)

_WARM_UPS: tuple[tuple[Api, dict[str, Any]], ...] = (
    (Api.CHAT, {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}),
    (Api.COMPLETIONS, {"prompt": "Hi", "max_tokens": 1}),
    (Api.EMBEDDINGS, {"input": "Hi"}),
)
"""Tried in turn until one is not refused: a model without a chat template completes, one for embeddings embeds."""


def upstream_kind(kind: EngineKind) -> Kind:
    match kind:
        case EngineKind.EDGEWISE:
            return Kind.EDGEWISE
        case EngineKind.LLAMA:
            return Kind.LLAMA
        case EngineKind.VLLM:
            return Kind.VLLM
        case EngineKind.EDGE_LLM:
            return Kind.EDGE_LLM
        case _:
            assert_never(kind)


def upstream_config(launch: Launch) -> UpstreamConfig:
    """The engine as an upstream of the gateway."""
    return UpstreamConfig(launch.name, launch.url, upstream_kind(launch.kind))


class EngineProbe:
    """Questions to one engine that the gateway started."""

    def __init__(self, launch: Launch, transport: Transport) -> None:
        self._launch = launch
        self._transport = transport
        self._kind = kind_of(upstream_kind(launch.kind))
        self._upstream = Upstream(upstream_config(launch), CircuitBreaker(1, 1.0))

    async def until_it_answers(self) -> None:
        """Wait for its health; for ever, if need be."""
        while not await self.answers():
            await asyncio.sleep(_PAUSE_S)

    async def answers(self) -> bool:
        try:
            return await self._ask().status(self._kind.health_path) < 500
        except (NotBegunError, BrokenReplyError):
            return False

    async def models(self) -> tuple[ModelCard, ...]:
        """What it lists, for a router also what is not loaded."""
        return await self._kind.models(self._ask()) or ()

    async def warm_up(self, model: str | None = None, *, timeout_s: float) -> None:
        """Have it make one token. `model` None: of the first it has loaded, if any. Raises EngineStartError saying what it answered."""
        if model is None:
            model = next((card.id for card in await self.models() if card.loaded), None)
            if model is None and self._launch.router:
                return
        for api, body in _WARM_UPS:
            status, text = await self._post(
                self._upstream.address(api.value), {"model": model or self._launch.name, **body}, timeout_s
            )
            if status == 200 or status in _BUSY:
                return
            if status >= 500:
                break
        raise EngineStartError(
            f"{self._launch.name}: its first request was answered with {status}: {text[:300]}"
        )

    async def switch(self, model: str, *, load: bool) -> None:
        """Tell a router to load or unload a model. Raises EngineStartError where it will not."""
        path = "/models/load" if load else "/models/unload"
        status, text = await self._post(self._upstream.url + path, {"model": model}, timeout_s=60.0)
        if status != 200:
            raise EngineStartError(f"{self._launch.name} answered {path} with {status}: {text[:300]}")

    async def until_loaded(self, model: str) -> None:
        """Wait until a router lists a model as loaded. Raises EngineStartError where it says that it failed."""
        while True:
            card = next((one for one in await self.models() if one.id == model), None)
            status = card.raw.get("status") if card else None
            if card is None or (isinstance(status, dict) and status.get("failed")):
                raise EngineStartError(
                    f"{self._launch.name} could not load {model}; `edgewise logs {self._launch.name}` says why"
                )
            if card.loaded:
                return
            await asyncio.sleep(_PAUSE_S)

    def _ask(self) -> Ask:
        return Ask(self._transport, self._upstream, timeout_s=_ASK_S)

    async def _post(self, url: str, body: dict[str, Any], timeout_s: float) -> tuple[int, str]:
        headers = {"content-type": "application/json"}
        try:
            reply = await self._transport.send("POST", url, headers, orjson.dumps(body), timeout=timeout_s)
            try:
                return reply.status, (await reply.read()).decode("utf-8", "replace")
            finally:
                await reply.aclose()
        except (NotBegunError, BrokenReplyError) as error:
            raise EngineStartError(f"{self._launch.name} did not answer: {error.message}") from error
