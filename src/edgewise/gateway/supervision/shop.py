"""What the engines of a gateway share: their states, their options, and whom they tell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from edgewise.core.engines import Launch, Ran
from edgewise.gateway.parts import Transport
from edgewise.gateway.supervision.memory import FreeMemory

Report = Callable[[dict[str, Any]], None]
"""Takes what happens during a load, step by step."""


class EngineState(StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    WARMING = "warming"
    READY = "ready"
    UNLOADING = "unloading"
    BACKING_OFF = "backing-off"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SupervisorOptions:
    """Times in seconds. `environment`: what every engine gets, before its own. `keep_free_bytes`: the floor, as commands are told it."""

    environment: Mapping[str, str] = field(default_factory=dict)
    keep_free_bytes: int = 0
    start_timeout_s: float = 1800.0  # the first start of some engines builds what later ones use
    warm_up_timeout_s: float = 300.0
    stop_grace_s: float = 10.0
    first_pause_s: float = 1.0  # doubled with each failed start
    longest_pause_s: float = 60.0
    stable_s: float = 60.0  # an engine that was ready this long begins with the first pause again
    memory_poll_s: float = 1.0
    warm_up_poll_s: float = 0.5
    housekeeping_s: float = 10.0  # between two looks at the sizes of the logs


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all engines share. `turn`: one starts at a time, since each takes the room that the next is measured against.

    `note` writes down the process of an engine, or that it has none; `ready` is told when one can be asked, before anybody else is.
    """

    transport: Transport
    options: SupervisorOptions
    free: FreeMemory
    note: Callable[[str, Ran | None], Awaitable[None]]
    ready: Callable[[str], Awaitable[None]]
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


def described(launch: Launch, state: EngineState) -> dict[str, Any]:
    """The row of an engine without a process. Sizes in bytes, times in seconds. `models`: of a router, each with a name and `loaded`."""
    return {
        "name": launch.name,
        "kind": launch.kind.value,
        "state": state.value,
        "url": launch.url,
        "router": launch.router,
        "models": [],
        "pid": None,
        "uptime_s": None,
        "rss_bytes": None,
        "need_bytes": launch.need_bytes,
        "restarts": 0,
        "last_error": None,
        "last_lines": [],
        "log": launch.log,
    }
