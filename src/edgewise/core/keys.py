"""API keys as a server has to know them: who a key names, and what it may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What a key may use; None: as much as comes.

    `weight`: its share of a busy upstream beside other keys. `background`: everything it asks waits for interactive work.
    """

    max_concurrent: int | None = None
    requests_per_minute: float | None = None
    weight: float = 1.0
    background: bool = False


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as far as a server has to know it. `id` names it in metrics and logs; the key itself is in neither."""

    id: str
    name: str = ""
    limits: KeyLimits = KeyLimits()
