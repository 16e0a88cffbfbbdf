"""Attention in NumPy and float64: what the native kernel computes, but for rounding, and how far rounding may take it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgewise.kernels.attention import BLOCK, F32, AttentionShape, Halves

F64 = npt.NDArray[np.float64]

EPS = 2.0**-24  # half a unit in the last place of 1.0f


def gather(
    keys: Halves, values: Halves, block_table: npt.NDArray[np.int32], num_keys: int
) -> tuple[F64, F64]:
    """The first `num_keys` keys f64[KV, S, D] and values f64[KV, S, Dv] of a sequence."""
    blocks = block_table[: -(-num_keys // BLOCK)]
    k = keys[blocks].view(np.float16).astype(np.float64).transpose(1, 0, 3, 2)
    v = values[blocks].view(np.float16).astype(np.float64).transpose(1, 0, 2, 3)
    heads = keys.shape[1]
    return (
        k.reshape(heads, -1, k.shape[3])[:, :num_keys],
        v.reshape(heads, -1, v.shape[3])[:, :num_keys],
    )


def visible(index: int, shape: AttentionShape) -> slice:
    """The keys that the row at `index` sees."""
    first = 0
    if shape.window:
        first = max(first, index - shape.window + 1)
    if shape.chunk:
        first = max(first, index // shape.chunk * shape.chunk)
    return slice(first, index + 1)


def attention(
    q: F32,
    keys: Halves,
    values: Halves,
    block_table: npt.NDArray[np.int32],
    first_index: int,
    shape: AttentionShape,
    *,
    sinks: F32 | None = None,
) -> tuple[F64, F64]:
    """Output f64[T, H, Dv] and, for each of its elements, a bound of a float32 computation's error.

    An fma chain of n steps errs by at most n eps of the sum of magnitudes. An error ds of the scores multiplies each weight
    by exp(+-ds), hence changes a weighted mean of values by at most 2 ds of the mean magnitude; scores themselves are
    exponentiated with an error of 2 eps and summed in S steps.
    """
    rows, heads, dim = q.shape
    group = heads // keys.shape[1]
    k, v = gather(keys, values, block_table, first_index + rows)
    out = np.empty((rows, heads, v.shape[2]))
    bound = np.empty_like(out)
    for t, h in np.ndindex(rows, heads):
        seen = visible(first_index + t, shape)
        key, value, query = k[h // group, seen], v[h // group, seen], q[t, h].astype(np.float64)
        scores = key @ query * shape.scale
        # The exponent's argument errs by the score's own rounding and by that of a difference up to twice as large.
        spread = (dim + 2) * EPS * (np.abs(key) @ np.abs(query)).max() * abs(shape.scale)
        if shape.soft_cap:
            scores = shape.soft_cap * np.tanh(scores / shape.soft_cap)
            spread += 4 * EPS * shape.soft_cap
        spread += 2 * EPS * np.abs(scores).max()
        top = max(scores.max(), -np.inf if sinks is None else float(sinks[h]))
        weights = np.exp(scores - top)
        total = weights.sum() + (0.0 if sinks is None else np.exp(float(sinks[h]) - top))
        out[t, h] = weights @ value / total
        bound[t, h] = (weights @ np.abs(value) / total) * (2 * spread + (len(scores) + 16) * EPS)
    return out, bound
