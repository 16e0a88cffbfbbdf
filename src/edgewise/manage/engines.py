"""The engines of this machine: those a person listed, which of them are to run, and the processes that were started for them.

`ran` has no tie to `engines`: the process of an engine that was taken off the list must still be found, to be stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from edgewise.core.engines import EngineKind, EngineSpec, Launch, Ran
from edgewise.core.errors import ConfigError
from edgewise.manage.launch import check_args
from edgewise.manage.state import State

FIRST_PORT = 8081
_LAST_PORT = 8999
_COLUMNS = (
    "name, kind, model, port, context, users, reasoning_parser, tool_parser, args, env, program, wanted"
)


class Launcher(Protocol):
    """What starts an engine, and what a router's model needs."""

    def launch(self, spec: EngineSpec, /) -> Launch: ...

    def model_bytes(self, spec: EngineSpec, model: str, /) -> int: ...


class Engines:
    """The list, in order of preference: the gateway's book of engines. One thread at a time."""

    def __init__(self, state: State, launcher: Launcher) -> None:
        self._state = state
        self._launcher = launcher

    def list(self) -> list[EngineSpec]:
        return [
            _spec(row) for row in self._state.read(f"SELECT {_COLUMNS} FROM engines ORDER BY position, name")
        ]

    def get(self, name: str) -> EngineSpec:
        """Raises ConfigError where there is none."""
        rows = self._state.read(f"SELECT {_COLUMNS} FROM engines WHERE name = ?", name)
        if not rows:
            raise ConfigError(f"there is no engine {name!r}", hint="`edgewise list` shows those there are")
        return _spec(rows[0])

    def add(self, spec: EngineSpec) -> None:
        """At the end of the order. Raises ConfigError for a name or a port that another engine has, or that cannot be one."""
        self._check(spec, {one.name: one for one in self.list()})
        self._write(spec)

    def replace(self, spec: EngineSpec) -> None:
        """The engine of that name, in its place. Raises ConfigError where there is none, and for what `add` refuses."""
        self.get(spec.name)
        self._check(spec, {one.name: one for one in self.list() if one.name != spec.name})
        self._write(spec)

    def remove(self, name: str) -> None:
        """Raises ConfigError where there is none."""
        self.get(name)
        with self._state.writing() as connection:
            connection.execute("DELETE FROM engines WHERE name = ?", (name,))

    def free_port(self) -> int:
        """One that no engine has and nobody listens on. Raises ConfigError where there is none."""
        taken = {spec.port for spec in self.list()}
        for port in range(FIRST_PORT, _LAST_PORT):
            if port not in taken and _is_free(port):
                return port
        raise ConfigError(f"no port from {FIRST_PORT} to {_LAST_PORT - 1} is free")

    def names(self) -> Sequence[str]:
        return [spec.name for spec in self.list()]

    def launch(self, name: str) -> Launch:
        return self.launch_of(self.get(name))

    def launch_of(self, spec: EngineSpec) -> Launch:
        """Of an engine as it would be, on the list or not. Raises ConfigError."""
        return self._launcher.launch(spec)

    def model_bytes(self, name: str, model: str) -> int:
        return self._launcher.model_bytes(self.get(name), model)

    def wanted(self) -> frozenset[str]:
        return frozenset(str(name) for (name,) in self._state.read("SELECT name FROM engines WHERE wanted"))

    def want(self, name: str, wanted: bool) -> None:
        with self._state.writing() as connection:
            connection.execute("UPDATE engines SET wanted = ? WHERE name = ?", (wanted, name))

    def ran(self) -> Mapping[str, Ran]:
        rows = cast("list[tuple[str, int, int, str]]", self._state.read("SELECT * FROM ran"))
        return {name: Ran(pid, start_ticks, digest) for name, pid, start_ticks, digest in rows}

    def note(self, name: str, ran: Ran | None) -> None:
        with self._state.writing() as connection:
            if ran is None:
                connection.execute("DELETE FROM ran WHERE name = ?", (name,))
            else:
                values = (name, ran.pid, ran.start_ticks, ran.digest)
                connection.execute("INSERT OR REPLACE INTO ran VALUES (?, ?, ?, ?)", values)

    def close(self) -> None:
        self._state.close()

    def _check(self, spec: EngineSpec, others: Mapping[str, EngineSpec]) -> None:
        check_name(spec.name)
        if spec.name in others:
            raise ConfigError(f"there is an engine {spec.name!r} already")
        holder = next((one.name for one in others.values() if one.port == spec.port), None)
        if holder is not None:
            raise ConfigError(f"port {spec.port} is {holder}'s", hint="--port picks another")
        if not 0 < spec.port < 1 << 16:
            raise ConfigError(f"{spec.port} is no port")
        check_args(spec)

    def _write(self, spec: EngineSpec) -> None:
        values = (
            spec.name,
            spec.kind.value,
            spec.model,
            spec.port,
            spec.context,
            spec.users,
            spec.reasoning_parser,
            spec.tool_parser,
            json.dumps(spec.args),
            json.dumps(dict(spec.env)),
            spec.program,
            spec.wanted,
        )
        columns = _COLUMNS.split(", ")
        update = ", ".join(f"{column} = excluded.{column}" for column in columns[1:])
        with _named_clash(spec), self._state.writing() as connection:
            connection.execute(
                f"INSERT INTO engines ({_COLUMNS}, position) "
                f"VALUES ({', '.join('?' * len(columns))}, (SELECT COALESCE(MAX(position), 0) + 1 FROM engines)) "
                f"ON CONFLICT (name) DO UPDATE SET {update}",
                values,
            )


@contextlib.contextmanager
def _named_clash(spec: EngineSpec) -> Iterator[None]:
    """Another process may have taken the port since it was looked at."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise ConfigError(f"port {spec.port} is another engine's", hint="--port picks another") from error


def check_name(name: str) -> None:
    """Raises ConfigError for what cannot name an engine: it is a word of requests, of flags, and of a log file's name."""
    if not name.isprintable() or not name or any(c.isspace() or c in '=:/"' for c in name) or name[0] in ".-":
        raise ConfigError(f"an engine's name must be one word without = : / \", got {name!r}")


def unused_name(wanted: str, taken: Collection[str]) -> str:
    """`wanted` without what no name may have, and with a number where it is taken."""
    name = (
        "".join("-" if c.isspace() or c in '=:/"' or not c.isprintable() else c for c in wanted).strip("-.")
        or "engine"
    )
    numbered = (f"{name}-{i}" for i in range(2, len(taken) + 3))
    return name if name not in taken else next(one for one in numbered if one not in taken)


def changed(spec: EngineSpec, **values: Any) -> EngineSpec:
    """The spec with those of the values that are not None."""
    return dataclasses.replace(spec, **{key: value for key, value in values.items() if value is not None})


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _spec(row: tuple[Any, ...]) -> EngineSpec:
    name, kind, model, port, context, users, reasoning, tool, args, env, program, wanted = row
    return EngineSpec(
        name=name,
        kind=EngineKind(kind),
        model=model,
        port=port,
        context=context,
        users=users,
        reasoning_parser=reasoning,
        tool_parser=tool,
        args=tuple(json.loads(args)),
        env=json.loads(env),
        program=program,
        wanted=bool(wanted),
    )
