"""A probe: one question about a server, and what was found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from edgewise.gateway.doctor.patient import Patient
from edgewise.gateway.profile import Fault


class Verdict(StrEnum):
    PASS = "pass"
    SHAPED = "works after shaping"  # broken, but the gateway mends it
    BROKEN = "broken"
    NOT_MEASURED = "not measured"


UNCURED = frozenset(
    (
        Fault.NO_CHAT,
        Fault.TOOLS_REFUSED,
        Fault.LOST_ARGUMENTS,
        Fault.LIMIT_IGNORED,
        Fault.OVERFLOW,
        Fault.NO_CANCEL,
        Fault.NO_PREFIX_CACHE,
        Fault.CACHED_TOKENS,
        Fault.ERROR_SHAPE,
        Fault.OPEN_DOOR,
        Fault.JSON_SCHEMA,
        Fault.ALWAYS_THINKS,
    )
)
"""Faults that nothing in front of a server can mend."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a probe found. `translated`: the server lacks something that the gateway makes up for, which is no fault."""

    faults: tuple[Fault, ...] = ()
    note: str = ""
    measured: bool = True
    translated: bool = False

    @property
    def verdict(self) -> Verdict:
        if not self.measured:
            return Verdict.NOT_MEASURED
        if not UNCURED.isdisjoint(self.faults):
            return Verdict.BROKEN
        return Verdict.SHAPED if self.faults or self.translated else Verdict.PASS


def passed(note: str = "") -> Finding:
    return Finding(note=note)


def found(fault: Fault, note: str) -> Finding:
    return Finding((fault,), note)


def not_measured(note: str) -> Finding:
    return Finding(note=note, measured=False)


@dataclass(frozen=True, slots=True)
class Probe:
    """`about`: what is right, in a few words. `looks_for`: the faults it can find; those are its to say and nobody else's.

    `with_tools`: it asks with tools and a free choice, so it can tell nothing of a server that refuses those.
    """

    name: str
    about: str
    looks_for: tuple[Fault, ...]
    run: Callable[[Patient], Awaitable[Finding]]
    with_tools: bool = False
