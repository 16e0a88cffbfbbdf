"""One measured number, as `edgewise bench --json` prints it: an object a line."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """A median with its spread, its share of what the machine can do, and the peer's median of the same run.

    `ratio` is ours / peer for rates, peer / ours for times and bytes: more than 1 is better than the peer.
    """

    figure: str
    value: float
    unit: str
    samples: tuple[float, ...] = ()
    share_of_limit: float | None = None
    peer_name: str | None = None
    peer: float | None = None
    ratio: float | None = None
    details: dict[str, Any] = field(default_factory=dict)  # batch, tokens, context: what was run

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"figure": self.figure, **self.details, "value": self.value, "unit": self.unit}
        if self.samples:
            out |= {"low": min(self.samples), "high": max(self.samples), "samples": len(self.samples)}
        for name in ("share_of_limit", "peer_name", "peer", "ratio"):
            if (value := getattr(self, name)) is not None:
                out[name] = value
        return out


def rate_figure(
    figure: str,
    tokens: int,
    ours_s: Sequence[float],
    peer_s: Sequence[float],
    *,
    share_per_rate: float,
    peer_name: str | None,
    details: dict[str, Any],
) -> Figure:
    """A figure in tokens/s from the seconds of each sample; `share_per_rate` turns a rate into a share of the machine's limit."""
    rates = tuple(tokens / s for s in ours_s)
    value = statistics.median(rates)
    peer = statistics.median(tokens / s for s in peer_s) if peer_s else None
    return Figure(
        figure=figure,
        value=value,
        unit="tokens/s",
        samples=rates,
        share_of_limit=value * share_per_rate,
        peer_name=peer_name if peer else None,
        peer=peer,
        ratio=value / peer if peer else None,
        details=details,
    )
