"""A book of stand-in engines in memory, for a supervisor without a data base."""

from __future__ import annotations

import dataclasses
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from edgewise.core.engines import EngineKind, Launch, Ran
from edgewise.core.errors import ConfigError

PROGRAM = Path(__file__).with_name("engine_program.py")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stand_in(folder: Path) -> Path:
    """The stand-in as a program that `--program` can name."""
    path = folder / "stand-in"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{PROGRAM}" "$@"\n')
    path.chmod(0o755)
    return path


class MemoryBook:
    """`launches` may be changed at any time; `sizes` are what a router's models need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launches: dict[str, Launch] = {}
        self.sizes: dict[str, int] = {}
        self.is_wanted: set[str] = set()
        self.processes: dict[str, Ran] = {}

    def put(self, name: str, *flags: str, port: int | None = None, **fields: object) -> Launch:
        """A stand-in that is started with these flags."""
        port = port or free_port()
        argv = (
            sys.executable,
            "-S",
            str(PROGRAM),
            "--port",
            str(port),
            "--model",
            f"model-of-{name}",
            *flags,
        )
        log = str(self.folder / f"{name}.log")
        launch = Launch(name, EngineKind.VLLM, argv, f"http://127.0.0.1:{port}", log)
        self.launches[name] = dataclasses.replace(launch, **fields)  # type: ignore[arg-type]
        return self.launches[name]

    def names(self) -> list[str]:
        return [*self.launches]

    def launch(self, name: str) -> Launch:
        if name not in self.launches:
            raise ConfigError(f"there is no engine {name!r}")
        return self.launches[name]

    def model_bytes(self, name: str, model: str) -> int:
        return self.sizes.get(model, 0)

    def wanted(self) -> frozenset[str]:
        return frozenset(self.is_wanted)

    def want(self, name: str, wanted: bool) -> None:
        (self.is_wanted.add if wanted else self.is_wanted.discard)(name)

    def ran(self) -> Mapping[str, Ran]:
        return dict(self.processes)

    def note(self, name: str, ran: Ran | None) -> None:
        self.processes.pop(name, None)
        if ran is not None:
            self.processes[name] = ran
