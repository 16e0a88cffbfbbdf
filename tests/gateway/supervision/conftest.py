"""Supervisors over stand-in engines: real processes, a memory that says what the test says, short pauses."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from edgewise.gateway.supervision.process import read_process
from edgewise.gateway.supervision.shop import SupervisorOptions
from edgewise.gateway.supervision.supervisor import Supervisor
from edgewise.gateway.transport import HttpTransport
from tests.support.engine_book import MemoryBook

GB = 10**9

QUICK = SupervisorOptions(
    environment=os.environ,
    start_timeout_s=20.0,
    warm_up_timeout_s=5.0,
    stop_grace_s=2.0,
    first_pause_s=0.05,
    longest_pause_s=0.4,
    memory_poll_s=0.02,
    warm_up_poll_s=0.02,
    housekeeping_s=0.1,
)


def ignore(event: dict[str, Any]) -> None:
    """A report that nobody reads."""


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    facts = read_process(pid)
    return facts is not None and not facts.dead


class Machine:
    """A supervisor, the memory it sees, the changes it told of."""

    def __init__(self, folder: Path) -> None:
        self.book = MemoryBook(folder)
        self.free_bytes = 100 * GB
        self.changes: list[str | None] = []
        self.transport = HttpTransport()
        self.supervisors: list[Supervisor] = []

    async def supervisor(self, **options: Any) -> Supervisor:
        """A new one, started."""

        async def changed(name: str | None) -> None:
            self.changes.append(name)

        chosen = dataclasses.replace(QUICK, **options)
        made = Supervisor(self.book, self.transport, lambda: self.free_bytes, changed, chosen)
        self.supervisors.append(made)
        await made.start()
        return made

    async def state(self, name: str) -> dict[str, Any]:
        return next(row for row in await self.supervisors[-1].ps() if row["name"] == name)


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    one = Machine(tmp_path)
    yield one
    for supervisor in one.supervisors[-1:]:
        supervisor._leaving = False
        await supervisor.stop()
    await one.transport.aclose()
