"""Models of a llama-server router: loaded and unloaded by its own calls, after the same look at the memory as for an engine. Event loop only."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from edgewise.core.errors import ConfigError
from edgewise.gateway.profile import ModelCard
from edgewise.gateway.supervision.engine import Engine
from edgewise.gateway.supervision.errors import EngineStartError
from edgewise.gateway.supervision.memory import check_floor, check_room, watch_floor
from edgewise.gateway.supervision.racing import first_of
from edgewise.gateway.supervision.shop import Report, Workshop

ModelBytes = Callable[[str, str], Awaitable[int]]
"""What a model of a router's (engine, model) needs, 0 where nobody can tell."""


async def load_model(
    engine: Engine, name: str, model_bytes: ModelBytes, shop: Workshop, report: Report
) -> None:
    """Returns once the model made a token. Below the floor it is unloaded again. Raises EdgewiseError."""
    card = await _card(engine, name)
    if card.loaded:
        report({"event": "ready", "name": name, "already": True})
        return
    launch = engine.launch
    async with shop.turn:
        need_bytes, free_bytes = await model_bytes(engine.name, card.id), shop.free()
        sizes = {
            "need_bytes": need_bytes,
            "keep_free_bytes": launch.keep_free_bytes,
            "free_bytes": free_bytes,
        }
        report({"event": "room", "name": name, **sizes})
        check_room(name, **sizes)
        report({"event": "starting", "name": name})
        try:
            await _guarded(engine, card.id, shop, report)
        except BaseException:
            with contextlib.suppress(EngineStartError):  # what went wrong before says more
                await engine.probe.switch(card.id, load=False)
            raise
    report({"event": "ready", "name": name})


async def _guarded(engine: Engine, model: str, shop: Workshop, report: Report) -> None:
    floor_bytes = engine.launch.keep_free_bytes
    floor = watch_floor(model, floor_bytes, shop.free, shop.options.warm_up_poll_s)
    come_up = _come_up(engine, model, shop, report)
    if not await first_of(floor, come_up, limit_s=shop.options.start_timeout_s):
        raise EngineStartError(f"{model} was not loaded within {shop.options.start_timeout_s:g} s")
    check_floor(model, keep_free_bytes=floor_bytes, free_bytes=shop.free())


async def _come_up(engine: Engine, model: str, shop: Workshop, report: Report) -> None:
    await engine.probe.switch(model, load=True)
    await engine.probe.until_loaded(model)
    report({"event": "warming", "name": model})
    await engine.probe.warm_up(model, timeout_s=shop.options.warm_up_timeout_s)


async def unload_model(engine: Engine, name: str) -> None:
    """Raises ConfigError where it is not loaded."""
    card = await _card(engine, name)
    if not card.loaded:
        raise ConfigError(f"{name} is not loaded in {engine.name}")
    await engine.probe.switch(card.id, load=False)


async def _card(engine: Engine, name: str) -> ModelCard:
    cards = await engine.probe.models()
    card = next((one for one in cards if name == one.id or name in one.aliases), None)
    if card is None:
        raise ConfigError(
            f"{engine.name} has no model {name!r}",
            hint=f"it has {', '.join(one.id for one in cards) or 'none'}",
        )
    return card
