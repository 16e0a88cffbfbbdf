"""Decoded blocks, and the bit fields they are cut from: what the decoders of all storage types share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Blocks = npt.NDArray[np.uint8]  # [B, block_bytes]
F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Groups:
    """Decoded blocks: B blocks of G scale groups of n values. value = scale * code + minimum."""

    codes: npt.NDArray[np.int8]  # [B, G, n]
    scale: F32  # [B, G]
    minimum: F32 | None = None  # [B, G]

    def values(self) -> F32:
        """f32 [B, G * n]."""
        out = self.scale[:, :, None] * self.codes.astype(np.float32)
        if self.minimum is not None:
            out += self.minimum[:, :, None]
        return out.reshape(len(out), -1)


def half(blocks: Blocks, at: int) -> F32:
    """The f16 at byte `at` of each block, as f32 [B, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def planes(part: npt.NDArray[np.uint8], bits: int, num_planes: int) -> npt.NDArray[np.uint8]:
    """Split bytes [B, runs, run] into `num_planes` bit fields, lowest first. [B, runs, num_planes, run]."""
    shifts = (np.arange(num_planes, dtype=np.uint8) * bits).reshape(1, 1, -1, 1)
    return (part[:, :, None, :] >> shifts) & np.uint8((1 << bits) - 1)


def grouped(codes: npt.NDArray[Any], size: int) -> npt.NDArray[np.int8]:
    return codes.reshape(len(codes), -1, size).astype(np.int8)
