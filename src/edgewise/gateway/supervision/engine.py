"""One engine's life: room, start, health, first token, ready; started again after longer and longer pauses when it ends. Event loop only.

stopped -> starting -> warming -> ready -> unloading -> stopped. Between a failure and the next start it is backing-off, or refused where there
was no room; failed is where nobody wants it to be tried again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from edgewise.core.engines import Launch, Ran
from edgewise.core.errors import EdgewiseError
from edgewise.gateway.supervision.errors import EngineStartError, NoRoomError
from edgewise.gateway.supervision.logs import EngineLog
from edgewise.gateway.supervision.memory import check_floor, check_room, watch_floor
from edgewise.gateway.supervision.probe import EngineProbe
from edgewise.gateway.supervision.process import EngineProcess, check_port, start_held
from edgewise.gateway.supervision.racing import first_of
from edgewise.gateway.supervision.shop import EngineState, Report, Workshop, described

logger = logging.getLogger("edgewise.gateway")


class Engine:
    """One engine that runs or is to run, from `begin` to `end` or `leave`."""

    def __init__(self, launch: Launch, shop: Workshop) -> None:
        self.launch = launch
        self.state = EngineState.STOPPED
        self.probe = EngineProbe(launch, shop.transport)
        self._shop = shop
        self._log = EngineLog(Path(launch.log))
        self._process: EngineProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._outcome: asyncio.Future[EngineStartError | None] = asyncio.get_running_loop().create_future()
        self._reports: list[Report] = []
        self._began_s = 0.0
        self._num_restarts = 0
        self._trouble: EngineStartError | None = None
        self._was_ready = False
        self._leaving = False

    @property
    def name(self) -> str:
        return self.launch.name

    @property
    def active(self) -> bool:
        """Whether it runs, comes up or goes down."""
        return self.state in (
            EngineState.STARTING,
            EngineState.WARMING,
            EngineState.READY,
            EngineState.UNLOADING,
        )

    @property
    def listed(self) -> bool:
        """Whether requests may name it: it was ready and nobody told it to stop. While it is down they hear that it is."""
        return self._was_ready and self.state not in (
            EngineState.UNLOADING,
            EngineState.STOPPED,
            EngineState.FAILED,
        )

    def begin(self, process: EngineProcess | None = None, *, insist: bool) -> None:
        """Start it, or look after a process that runs. `insist`: try again when the first start fails."""
        self._process = process
        self.state = EngineState.STARTING
        name = f"engine {self.name}"
        self._task = asyncio.get_running_loop().create_task(self._live(insist), name=name)

    async def follow(self, report: Report) -> None:
        """Wait for the outcome of the first start. Raises EngineStartError for a failure."""
        self._reports.append(report)
        try:
            error = await asyncio.shield(self._outcome)
        finally:
            self._reports.remove(report)
        if error is not None:
            raise error

    async def end(self) -> None:
        """Stop it, whatever it was doing."""
        self.state = EngineState.UNLOADING
        await self._cancel()
        await self._stop_process()
        self.state = EngineState.STOPPED
        self._settle(EngineStartError(f"{self.name} was unloaded while it started"))

    async def leave(self) -> None:
        """Look after it no longer; it runs on."""
        self._leaving = True
        await self._cancel()
        if self._process is not None:
            self._process.let_go()

    def status(self) -> dict[str, Any]:
        """Its row in `ps`, as `described` has it."""
        row = {**described(self.launch, self.state), "restarts": self._num_restarts}
        if self._process is not None and self._process.running:
            process = self._process
            row |= {"pid": process.pid, "uptime_s": process.uptime_s(), "rss_bytes": process.rss_bytes()}
        if self._trouble is not None:
            row |= {"last_error": self._trouble.message, "last_lines": [*self._trouble.lines]}
        return row

    def tidy(self) -> None:
        """Keep the log within its limit. May take a moment; any thread."""
        self._log.rotate()

    async def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _stop_process(self) -> None:
        if self._process is not None:
            await self._process.stop(self._shop.options.stop_grace_s)
            self._process = None
            await self._shop.note(self.name, None)

    def _report(self, event: str, **more: Any) -> None:
        for report in self._reports:
            report({"event": event, "name": self.name, **more})

    def _settle(self, error: EngineStartError | None) -> None:
        if not self._outcome.done():
            self._outcome.set_result(error)

    async def _live(self, insist: bool) -> None:
        try:
            await self._keep_running(insist)
        except Exception as error:  # a fault of ours must show, in `ps` and to whoever waits
            logger.exception("%s is given up", self.name)
            self._fail(EngineStartError(f"{self.name}: {error}"), EngineState.FAILED)

    async def _keep_running(self, insist: bool) -> None:
        options = self._shop.options
        pause_s = options.first_pause_s
        while True:
            try:
                process = await self._come_up()
            except EngineStartError as error:
                again = EngineState.REFUSED if isinstance(error, NoRoomError) else EngineState.BACKING_OFF
                given_up = EngineState.REFUSED if isinstance(error, NoRoomError) else EngineState.FAILED
                self._fail(error, again if insist else given_up)
                if not insist:
                    return
            else:
                insist = True
                ready_s = time.monotonic()
                how = await process.ended()
                if time.monotonic() - ready_s >= options.stable_s:
                    pause_s = options.first_pause_s
                self._fail(
                    EngineStartError(f"{self.name}: {how}", lines=self._log.last_lines()),
                    EngineState.BACKING_OFF,
                )
                self._process = None
                await self._shop.note(self.name, None)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, options.longest_pause_s)
            self._num_restarts += 1
            self.state = EngineState.STARTING

    def _fail(self, error: EngineStartError, state: EngineState) -> None:
        logger.warning("%s: %s", state.value, error.message)
        self._trouble = error
        self.state = state
        self._settle(error)

    async def _come_up(self) -> EngineProcess:
        """From nothing, or from a process that was adopted, to an engine that can be asked. Raises EngineStartError; nothing runs then."""
        self._began_s = time.monotonic()
        try:
            if (process := self._process) is not None:  # it had its room, and its first token
                await self._step(process, self.probe.until_it_answers(), self._shop.options.start_timeout_s)
            else:
                process = await self._in_turn()
        except BaseException as error:
            if not self._leaving:
                await self._stop_process()
            if isinstance(error, EdgewiseError | OSError) and not isinstance(error, EngineStartError):
                raise EngineStartError(f"{self.name}: {error}") from error
            raise
        self.state = EngineState.READY
        self._was_ready = True
        await self._shop.ready(self.name)
        self._report("ready", seconds=self._seconds())
        logger.info("%s is ready after %g s", self.name, self._seconds())
        self._settle(None)
        return process

    async def _in_turn(self) -> EngineProcess:
        """One that ran before need not wait: it had its room, and those who use it wait too."""
        if self._was_ready:
            return await self._from_nothing()
        if self._shop.turn.locked():
            self._report("waiting", what="another engine starts")
        async with self._shop.turn:
            return await self._from_nothing()

    async def _from_nothing(self) -> EngineProcess:
        options = self._shop.options
        self._check_room()
        process = await self._start()
        self._report("starting", pid=process.pid)
        await self._step(process, self.probe.until_it_answers(), options.start_timeout_s)
        self.state = EngineState.WARMING
        self._report("warming", seconds=self._seconds())
        warm_up = self.probe.warm_up(timeout_s=options.warm_up_timeout_s)
        await self._step(process, warm_up, options.warm_up_timeout_s)
        check_floor(self.name, keep_free_bytes=self.launch.keep_free_bytes, free_bytes=self._shop.free())
        return process

    def _check_room(self) -> None:
        free_bytes = self._shop.free()
        need_bytes, keep_free_bytes = self.launch.need_bytes, self.launch.keep_free_bytes
        self._report("room", need_bytes=need_bytes, keep_free_bytes=keep_free_bytes, free_bytes=free_bytes)
        check_room(self.name, need_bytes=need_bytes, keep_free_bytes=keep_free_bytes, free_bytes=free_bytes)

    async def _start(self) -> EngineProcess:
        """A process that is written down before it begins."""
        check_port(self.launch)
        process = start_held(self.launch, self._shop.options.environment, self._log)
        self._process = process
        await self._shop.note(self.name, Ran(process.pid, process.start_ticks, self.launch.digest))
        process.release()
        return process

    async def _step(self, process: EngineProcess, work: Coroutine[Any, Any, None], limit_s: float) -> None:
        """Do some of coming up, as long as the process lives, the memory lasts and the time is not over."""
        warming = self.state is EngineState.WARMING
        poll_s = self._shop.options.warm_up_poll_s if warming else self._shop.options.memory_poll_s
        floor = watch_floor(self.name, self.launch.keep_free_bytes, self._shop.free, poll_s)
        try:
            ended = await first_of(floor, self._died(process), work, limit_s=limit_s)
        except EngineStartError as error:
            error.lines = error.lines or tuple(self._log.last_lines())
            raise
        if not ended:
            doing = "make its first token" if warming else "answer"
            why = f"{self.name} did not {doing} within {limit_s:g} s"
            raise EngineStartError(why, lines=self._log.last_lines())

    async def _died(self, process: EngineProcess) -> None:
        how = await process.ended()
        raise EngineStartError(f"{self.name} did not start: {how}")

    def _seconds(self) -> float:
        return round(time.monotonic() - self._began_s, 1)
