"""Sampling in NumPy and float64: what one row's parameters make of its logits, as a distribution.

The native code computes weights in float32; near a border of the inverse distribution or of a cut it may choose the neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int32]

_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Lists:
    """The lists of one row; see SampleBatch."""

    prompt: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    banned: tuple[int, ...] = ()
    bias: tuple[tuple[int, float], ...] = ()
    allowed: npt.NDArray[np.bool_] | None = None  # bool[V]


@dataclass(frozen=True, slots=True)
class Distribution:
    """The candidates in the order in which they are drawn, their probabilities summing to 1."""

    ids: npt.NDArray[np.int64]
    probabilities: F64

    def draw(self, u: float) -> int:
        """The candidate at which the cumulated probability first exceeds `u` in [0, 1)."""
        place = int(np.searchsorted(np.cumsum(self.probabilities), u, side="right"))
        return int(self.ids[min(place, len(self.ids) - 1)])


def edited(logits: F32, row: Any, lists: Lists) -> F32:
    """A copy of f32[V] with masks, bias and penalties applied, in float32 like the native code. `row`: a record of ROW."""
    x = logits.copy()
    vocab = len(x)
    if lists.allowed is not None:
        x[~lists.allowed] = -np.inf
    x[[i for i in lists.banned if 0 <= i < vocab]] = -np.inf
    for i, value in lists.bias:
        if 0 <= i < vocab:
            x[i] += np.float32(value)
    seen = sorted({i for i in lists.prompt + lists.output if 0 <= i < vocab})
    penalty = np.float32(row["repetition_penalty"])
    if penalty != 1:
        x[seen] = np.where(x[seen] > 0, x[seen] / penalty, x[seen] * penalty)
    for i in sorted(set(lists.output) & set(seen)):
        x[i] -= np.float32(row["frequency_penalty"]) * np.float32(lists.output.count(i))
        x[i] -= np.float32(row["presence_penalty"])
    return x


def distribution(x: F32, row: Any) -> Distribution:
    """What temperature, min_p, top_k and top_p leave of the edited logits f32[V]; temperature above 0.

    With a filter the order is (logit descending, id ascending), without one by id.
    """
    weights = np.exp((x.astype(np.float64) - float(x.max())) / float(row["temperature"]))
    top_k, top_p, min_p = int(row["top_k"]), float(row["top_p"]), float(row["min_p"])
    top_k = top_k if 0 < top_k < len(x) else 0
    order = np.arange(len(x))
    if top_k or top_p < 1 or min_p > 0:
        order = np.lexsort((order, -x))
        order = order[weights[order] >= min_p]
    order = order[weights[order] > 0]
    if top_k:
        order = order[:top_k]
    if top_p < 1:
        cumulated = np.cumsum(weights[order])
        order = order[: int(np.searchsorted(cumulated, top_p * cumulated[-1], side="left")) + 1]
    return Distribution(order, weights[order] / weights[order].sum())


def log_softmax(logits: F32) -> F64:
    """log p of every token, f64[V]."""
    x = logits.astype(np.float64) - float(logits.max())
    return np.asarray(x - np.log(np.exp(x).sum()), np.float64)


def rank(logits: F32, token: int) -> int:
    """The place of `token` in (logit descending, id ascending), from 1."""
    return 1 + int((logits > logits[token]).sum()) + int((logits[:token] == logits[token]).sum())


def uniform(seed: int, counter: int) -> float:
    """The number in [0, 1) that (seed, counter) stand for: Philox 4x32-10 with key seed and counter (counter, 0), 53 bits.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    key = [seed & _MASK, seed >> 32]
    c = [counter & _MASK, counter >> 32, 0, 0]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ key[0], b & _MASK, (a >> 32) ^ c[3] ^ key[1], a & _MASK]
        key = [(key[0] + 0x9E3779B9) & _MASK, (key[1] + 0xBB67AE85) & _MASK]
    return float((c[1] << 32 | c[0]) >> 11) * 2.0**-53
