"""What is kept of engines: those a person listed, those that are to run, those that were started. The command line hands in who keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from edgewise.core.engines import Launch, Ran


class EngineBook(Protocol):
    """Called from one thread at a time; may read and write files. What is written is there after a SIGKILL."""

    def names(self) -> Sequence[str]:
        """Every engine, in order of preference."""
        ...

    def launch(self, name: str, /) -> Launch:
        """How to start one. Raises EdgewiseError for a name nobody listed, and for an engine that cannot be started as it is described."""
        ...

    def model_bytes(self, name: str, model: str, /) -> int:
        """What a model of a router's needs once it is loaded, 0 where nobody can tell."""
        ...

    def wanted(self) -> frozenset[str]:
        """Those that run whenever the gateway does."""
        ...

    def want(self, name: str, wanted: bool, /) -> None: ...

    def ran(self) -> Mapping[str, Ran]:
        """The processes that were started and not seen to end, also of engines that are no longer listed."""
        ...

    def note(self, name: str, ran: Ran | None, /) -> None: ...
