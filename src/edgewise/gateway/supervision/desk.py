"""Supervision as the gateway runs it: the engines of one data folder, the lock that makes them ours, the socket. Event loop only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgewise.gateway.config import UpstreamConfig
from edgewise.gateway.parts import Transport
from edgewise.gateway.supervision.book import EngineBook
from edgewise.gateway.supervision.control import Control, DataFolderLock
from edgewise.gateway.supervision.memory import FreeMemory
from edgewise.gateway.supervision.shop import SupervisorOptions
from edgewise.gateway.supervision.supervisor import Changed, Supervisor


class EngineDesk:
    """Opened and closed with the gateway. `free`: bytes that can be taken on this machine now."""

    def __init__(
        self, book: EngineBook, data_dir: Path, free: FreeMemory, options: SupervisorOptions | None = None
    ) -> None:
        """Raises ConfigError where another gateway looks after the engines of this folder."""
        self._lock = DataFolderLock(data_dir)
        self._book = book
        self._data_dir = data_dir
        self._free = free
        self._options = options
        self.supervisor: Supervisor | None = None
        self._control: Control | None = None

    async def open(self, transport: Transport, changed: Changed, default: Callable[[], str | None]) -> None:
        """Engines that are wanted come up by themselves from here on, and commands are heard."""
        self.supervisor = Supervisor(self._book, transport, self._free, changed, self._options)
        self._control = Control(self._data_dir, self.supervisor, default)
        await changed(None)
        await self.supervisor.start()
        await self._control.start()

    async def close(self) -> None:
        """The engines are stopped, or left if that was asked for."""
        if self.supervisor is not None and self._control is not None:
            await self._control.stop()
            await self.supervisor.stop()

    def release(self) -> None:
        """Let another gateway look after the engines of this folder."""
        self._lock.release()

    def upstreams(self, taken: frozenset[str]) -> tuple[UpstreamConfig, ...]:
        """The engines that may be asked, in the book's order. `taken`: names of other upstreams; an engine with one of them is hidden."""
        if self.supervisor is None:
            return ()
        self.supervisor.taken = taken
        return tuple(one for one in self.supervisor.upstreams if one.name not in taken)
