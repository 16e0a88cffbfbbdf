"""How long-running work reports to whoever draws the bar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stage = Literal["download", "check", "build", "wait"]


@dataclass(frozen=True, slots=True)
class Progress:
    """`done_bytes` of `total_bytes` (0: unknown) of a stage. `detail` names the file or tensor at hand."""

    stage: Stage
    done_bytes: int
    total_bytes: int
    detail: str = ""


ProgressCallback = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report to nobody."""
