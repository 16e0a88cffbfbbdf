"""Attention over a paged f16 cache and the write into it, on the calling thread: the doors that tests and tools use.

A model's steps reach the same kernels through `_native.Program`. The cache of a layer is two arrays of blocks of 32 tokens, as
float16 bits: keys u16[N, KV, D, 32] (transposed in the block) and values u16[N, KV, 32, Dv], both beginning at a multiple of
64 bytes (`new_cache`). What is computed, and in which order, is in native/attention.h; `reference_attention` says it in NumPy.
Raises ValueError for arrays that do not fit each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgewise import _native
from edgewise.kernels.linear import aligned_bytes

BLOCK = 32  # tokens
MAX_ROWS = 64

F32 = npt.NDArray[np.float32]
Halves = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What of the keys a row sees, and how scores are made. 0 turns a field off.

    window: keys of the last `window` indices, its own included; chunk: keys from the last multiple of `chunk` on.
    """

    scale: float
    soft_cap: float = 0.0
    window: int = 0
    chunk: int = 0


def new_cache(num_blocks: int, kv_heads: int, key_dim: int, value_dim: int) -> tuple[Halves, Halves]:
    """Zeroed keys and values of one layer."""
    keys = aligned_bytes(num_blocks * kv_heads * key_dim * BLOCK * 2).view(np.uint16)
    values = aligned_bytes(num_blocks * kv_heads * BLOCK * value_dim * 2).view(np.uint16)
    keys[:] = values[:] = 0
    return keys.reshape(num_blocks, kv_heads, key_dim, BLOCK), values.reshape(
        num_blocks, kv_heads, BLOCK, value_dim
    )


def kv_write(
    keys: Halves,
    values: Halves,
    block_table: npt.NDArray[np.int32],
    index: int,
    k: F32,
    v: F32,
    *,
    isa: str = "auto",
) -> None:
    """Write k f32[KV, D] and v f32[KV, Dv], rounded to float16, as token `index` of the sequence."""
    _native.kv_write(isa, keys, values, block_table, index, k, v)


def attention(
    q: F32,
    keys: Halves,
    values: Halves,
    block_table: npt.NDArray[np.int32],
    first_index: int,
    shape: AttentionShape,
    *,
    sinks: F32 | None = None,
    isa: str = "auto",
) -> F32:
    """Output f32[T, H, Dv] of q f32[T, H, D], the rows at indices first_index, first_index + 1, ... of one sequence.

    T is at most MAX_ROWS; `sinks` f32[H]. Releases the GIL.
    """
    out = np.empty((*q.shape[:2], values.shape[3]), np.float32)
    _native.attention(
        isa, q, keys, values, block_table, first_index,
        shape.scale, shape.soft_cap, shape.window, shape.chunk, sinks, out,
    )  # fmt: skip
    return out
