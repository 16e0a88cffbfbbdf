"""Room for an engine: refused before it starts where it cannot fit, and told off where the machine falls below its floor while it comes up.

Memory is committed at first use on many machines, so what an engine says it has loaded is not what it takes in the end: hence the floor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from edgewise.gateway.supervision.errors import NoRoomError

FreeMemory = Callable[[], int]
"""Bytes that can still be taken on this machine."""


def check_room(name: str, *, need_bytes: int, keep_free_bytes: int, free_bytes: int) -> None:
    """Raises NoRoomError naming all three numbers."""
    if need_bytes + keep_free_bytes > free_bytes:
        raise NoRoomError(
            f"{name} needs {gigabytes(need_bytes)} and {gigabytes(keep_free_bytes)} must stay free, "
            f"but only {gigabytes(free_bytes)} is free",
            hint="unload another engine, or take a smaller context or fewer users",
        )


def check_floor(name: str, *, keep_free_bytes: int, free_bytes: int) -> None:
    """Raises NoRoomError."""
    if free_bytes < keep_free_bytes:
        raise NoRoomError(
            f"{name} left {gigabytes(free_bytes)} free, less than the {gigabytes(keep_free_bytes)} that must stay; it was stopped",
            hint="unload another engine, or take a smaller context or fewer users",
        )


async def watch_floor(name: str, keep_free_bytes: int, free: FreeMemory, every_s: float) -> None:
    """Never returns. Raises NoRoomError as soon as the machine is below the floor."""
    while True:
        check_floor(name, keep_free_bytes=keep_free_bytes, free_bytes=free())
        await asyncio.sleep(every_s)


def gigabytes(num_bytes: int) -> str:
    """For people: 1.25 GB."""
    return f"{num_bytes / 1e9:.3g} GB"
