"""All engines of the book: loaded and unloaded on command, adopted or started when the gateway starts, stopped or left when it stops.

Nothing here starts an engine but `load`, and `start` and `apply` for those that are wanted. Event loop only; the book is asked on a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from edgewise.core.engines import EngineKind, Launch, Ran
from edgewise.core.errors import ConfigError, EdgewiseError
from edgewise.gateway.config import UpstreamConfig
from edgewise.gateway.parts import BrokenReplyError, NotBegunError, Transport
from edgewise.gateway.supervision.book import EngineBook
from edgewise.gateway.supervision.engine import Engine
from edgewise.gateway.supervision.errors import EngineStartError
from edgewise.gateway.supervision.memory import FreeMemory
from edgewise.gateway.supervision.probe import upstream_config
from edgewise.gateway.supervision.process import adopt
from edgewise.gateway.supervision.router_models import load_model, unload_model
from edgewise.gateway.supervision.shop import EngineState, Report, SupervisorOptions, Workshop, described

logger = logging.getLogger("edgewise.gateway")

T = TypeVar("T")

Changed = Callable[[str | None], Awaitable[None]]
"""Awaited when `Supervisor.upstreams` became others; the name of one that is to be asked from now on, if that is why."""


class Supervisor:
    """The engines of one data folder. `changed` puts their upstreams in place."""

    def __init__(
        self,
        book: EngineBook,
        transport: Transport,
        free: FreeMemory,
        changed: Changed,
        options: SupervisorOptions | None = None,
    ) -> None:
        self._book = book
        self._options = options or SupervisorOptions()
        self._changed = changed
        self._shop = Workshop(transport, self._options, free, self._note, self._ready)
        self._engines: dict[str, Engine] = {}
        self._order: Sequence[str] = ()
        self._reading = asyncio.Lock()
        self._deciding = asyncio.Lock()
        self._leaving = self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.taken: frozenset[str] = frozenset()  # names of upstreams that are no engines of ours

    @property
    def upstreams(self) -> tuple[UpstreamConfig, ...]:
        """Those that may be asked, in the book's order."""
        listed = [engine for engine in self._engines.values() if engine.listed]
        places = {name: i for i, name in enumerate(self._order)}
        listed.sort(key=lambda engine: places.get(engine.name, len(places)))
        return tuple(upstream_config(engine.launch) for engine in listed)

    async def start(self) -> None:
        """Adopt what still runs as it should, stop what should not, start what is wanted and does not. Returns before they are ready."""
        await self._settle(restarts=lambda name: None)
        self._background(self._keep_house())

    async def stop(self) -> None:
        """Stop every engine, or leave all of them running if that was asked for."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        engines = [*self._engines.values()]
        await asyncio.gather(*(one.leave() if self._leaving else one.end() for one in engines))

    def leave(self) -> None:
        """Let the engines run on when the gateway stops; the next one adopts them."""
        self._leaving = True

    async def load(self, name: str, report: Report) -> None:
        """Have an engine, or ENGINE/MODEL of a router, ready. Returns once it is. Raises EdgewiseError where it cannot be."""
        if "/" in name:
            await load_model(self._router(name), name.partition("/")[2], self._book_bytes, self._shop, report)
            await self._changed(None)  # its list is read again
            return
        async with self._deciding:
            launch = await self._ask_book(self._book.launch, name)
            self._order = await self._ask_book(self._book.names)
            engine = self._engines.get(name)
            if engine is None or not engine.active:
                engine = await self._begin_anew(launch, engine)
            elif engine.launch.digest != launch.digest:
                raise ConfigError(
                    f"{name} is loaded with other settings", hint=f"`edgewise unload {name}` first"
                )
        if engine.state is EngineState.READY:
            report({"event": "ready", "name": name, "already": True})
            return
        await engine.follow(report)

    async def _begin_anew(self, launch: Launch, before: Engine | None) -> Engine:
        if self._stopping:
            raise ConfigError("the gateway is stopping")
        if launch.name in self.taken:
            raise ConfigError(f"the gateway's configuration has another upstream called {launch.name!r}")
        insist = before is not None and launch.name in await self._ask_book(self._book.wanted)
        if before is not None:
            await before.end()
        engine = self._engines[launch.name] = Engine(launch, self._shop)
        engine.begin(insist=insist)
        return engine

    async def unload(self, name: str, report: Report) -> None:
        """Stop an engine, or have a router unload ENGINE/MODEL. Raises ConfigError where it is not loaded."""
        if "/" in name:
            await unload_model(self._router(name), name.partition("/")[2])
            await self._changed(None)
            return
        async with self._deciding:
            wanted = name in await self._ask_book(self._book.wanted)
            if not wanted and name not in self._engines:
                known = name in await self._ask_book(self._book.names)
                what = "is not loaded" if known else "is no engine"
                raise ConfigError(f"{name} {what}", hint="`edgewise ps` shows those that are")
            await self._ask_book(self._book.want, name, False)
            report({"event": "unloading", "name": name})
            if name in self._engines:
                await self._end(name)

    async def _end(self, name: str) -> None:
        engine = self._engines[name]
        engine.state = EngineState.UNLOADING
        await self._changed(None)  # nobody is sent there from here on
        await engine.end()
        del self._engines[name]

    async def apply(self, report: Report) -> None:
        """Do what the book says now: stop engines that it no longer lists, restart those that are started differently, and nothing else.

        Waits for those that were restarted. Each that does not start is reported; the first is raised, once the others are up.
        """
        begun = await self._settle(restarts=lambda name: report({"event": "restarting", "name": name}))
        failures: list[EngineStartError] = []

        async def follow(engine: Engine) -> None:
            try:
                await engine.follow(report)
            except EngineStartError as error:
                report({"event": "failed", "name": engine.name, "why": error.message, "hint": error.hint})
                failures.append(error)

        await asyncio.gather(*map(follow, begun))
        if failures:
            raise failures[0]

    async def ps(self) -> list[dict[str, Any]]:
        """Every engine of the book, then those that run although it lists them no longer."""
        names = await self._ask_book(self._book.names)
        rows = []
        for name in dict.fromkeys([*names, *self._engines]):
            engine = self._engines.get(name)
            if engine is not None:
                row = await asyncio.to_thread(engine.status)
                rows.append(row | {"models": await self._models(engine)})
                continue
            try:
                launch = await self._ask_book(self._book.launch, name)
                rows.append(described(launch, EngineState.STOPPED))
            except EdgewiseError as error:
                broken = Launch(name, EngineKind.EDGEWISE, (), "", "")
                rows.append(
                    {**described(broken, EngineState.STOPPED), "kind": None, "last_error": error.message}
                )
        return rows

    async def _models(self, engine: Engine) -> list[dict[str, Any]]:
        """A router's, each with whether it is loaded."""
        if not engine.launch.router or engine.state is not EngineState.READY:
            return []
        with contextlib.suppress(NotBegunError, BrokenReplyError):
            return [{"name": card.id, "loaded": card.loaded} for card in await engine.probe.models()]
        return []

    def free_bytes(self) -> int:
        return self._shop.free()

    @property
    def keep_free_bytes(self) -> int:
        return self._options.keep_free_bytes

    def _router(self, name: str) -> Engine:
        """The engine whose model that is. Raises ConfigError."""
        own = name.partition("/")[0]
        engine = self._engines.get(own)
        if engine is None or engine.state is not EngineState.READY:
            raise ConfigError(f"{own} is not loaded", hint=f"`edgewise load {own}` starts it")
        if not engine.launch.router:
            raise ConfigError(f"{own} is no router of several models")
        return engine

    async def _settle(self, restarts: Callable[[str], None]) -> list[Engine]:
        """Bring processes and book together. The engines that were begun."""
        async with self._deciding:
            self._order = await self._ask_book(self._book.names)
            wanted = await self._ask_book(self._book.wanted)
            launches = await self._launches([*wanted, *self._engines])
            ran = await self._ask_book(self._book.ran)
            await self._drop_others(launches, wanted, ran)
            missing = [name for name in self._order if name in wanted and name not in self._engines]
            begun = []
            for name in missing:
                if (launch := launches.get(name)) is None:
                    continue
                restarts(name)
                engine = self._engines[name] = Engine(launch, self._shop)
                one = ran.get(name)
                engine.begin(adopt(one) if one and one.digest == launch.digest else None, insist=True)
                begun.append(engine)
            return begun

    async def _launches(self, names: list[str]) -> dict[str, Launch]:
        """Those that can be made; the others are complained of."""
        made = {}
        for name in dict.fromkeys(names):
            try:
                made[name] = await self._ask_book(self._book.launch, name)
            except EdgewiseError as error:
                logger.error("%s cannot be started: %s", name, error.message)
        return made

    async def _drop_others(
        self, launches: Mapping[str, Launch], wanted: frozenset[str], ran: Mapping[str, Ran]
    ) -> None:
        """Stop what is unlisted, changed, or was on its way up or down when a gateway was killed."""
        digests = {name: launch.digest for name, launch in launches.items()}
        for name, engine in [*self._engines.items()]:
            if digests.get(name) != engine.launch.digest:
                await self._end(name)
        for name, one in ran.items():
            if name in self._engines or (name in wanted and digests.get(name) == one.digest):
                continue
            process = adopt(one)
            if process is not None:
                logger.info("%s is stopped: it is not to run, or not in this way", name)
                await process.stop(self._options.stop_grace_s)
            await self._note(name, None)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(self._options.housekeeping_s)
            for engine in [*self._engines.values()]:
                with contextlib.suppress(OSError):  # a full disk must not end the watch over the others
                    await asyncio.to_thread(engine.tidy)

    def _background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ready(self, name: str) -> None:
        await self._ask_book(self._book.want, name, True)
        await self._changed(name)

    async def _note(self, name: str, ran: Ran | None) -> None:
        await self._ask_book(self._book.note, name, ran)

    async def _book_bytes(self, name: str, model: str) -> int:
        return await self._ask_book(self._book.model_bytes, name, model)

    async def _ask_book(self, question: Callable[..., T], *values: Any) -> T:
        """One question at a time, on a thread: it may wait for the disk."""
        async with self._reading:
            return await asyncio.to_thread(question, *values)
