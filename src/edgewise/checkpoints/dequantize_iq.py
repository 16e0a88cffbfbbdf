"""Decoders of the codebook types IQ1, IQ2 and IQ3: runs of 4 or 8 values are entries of a fixed table, with signs beside them.

iq_grids.npz holds the tables as int8 [entries, run]; they are part of the format, as the ggml project defines it (MIT licence).
A test compares all of them with the gguf package's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import as_file, files
from typing import Any

import numpy as np
import numpy.typing as npt

from edgewise.checkpoints.groups import Blocks, Groups, grouped, half, planes

Bytes = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.int8]


@cache
def _grid(name: str) -> Codes:
    with as_file(files("edgewise.checkpoints") / "iq_grids.npz") as path, np.load(path) as tables:
        table: Codes = tables[name]
        return table


def _word(blocks: Blocks, start: int, count: int, kind: str) -> npt.NDArray[np.uint32]:
    """`count` little-endian words of a block, as u32 [B, count]."""
    size = np.dtype(kind).itemsize
    return np.ascontiguousarray(blocks[:, start : start + count * size]).view(kind).astype(np.uint32)


def _signed(grid: Codes, sign_bits: npt.NDArray[np.uint8]) -> Codes:
    """Flip the values whose bit is set; one byte of signs for each 8 values. Flattened per block."""
    bits = np.unpackbits(sign_bits.reshape(len(sign_bits), -1), axis=1, bitorder="little")
    values = grid.reshape(len(grid), -1)
    return np.where(bits != 0, -values, values)


def _seven_bit_signs(words: npt.NDArray[Any]) -> Bytes:
    """Seven stored sign bits; the eighth makes their number even."""
    seven: Bytes = (words & 127).astype(np.uint8)
    parity: Bytes = np.bitwise_xor.reduce((seven[..., None] >> np.arange(7, dtype=np.uint8)) & 1, axis=-1)
    return seven | (parity << np.uint8(7))


def _packed_signs(words: npt.NDArray[np.uint32]) -> Bytes:
    """Four times seven sign bits in the low 28 of a word [B, n] -> [B, n * 4]."""
    fields = words[:, :, None] >> np.array([0, 7, 14, 21], dtype=np.uint32)
    return _seven_bit_signs(fields).reshape(len(words), -1)


def _nibble_scales(part: Bytes) -> npt.NDArray[np.float32]:
    """4-bit scales, low half first. f32 [B, 2 n]."""
    return planes(part.reshape(len(part), -1, 1), 4, 2).reshape(len(part), -1).astype(np.float32)


def _iq2_xxs(blocks: Blocks) -> Groups:
    words = _word(blocks, 2, 16, "<u4").reshape(-1, 8, 2)
    signs_and_scales = words[:, :, 1]
    entries = np.ascontiguousarray(words[:, :, 0]).view(np.uint8)
    scale = half(blocks, 0) * (0.5 + (signs_and_scales >> 28).astype(np.float32)) * np.float32(0.25)
    return Groups(grouped(_signed(_grid("iq2_xxs")[entries], _packed_signs(signs_and_scales)), 32), scale)


def _iq2_xs(blocks: Blocks) -> Groups:
    words = _word(blocks, 2, 32, "<u2")
    scale = half(blocks, 0) * (0.5 + _nibble_scales(blocks[:, 66:74])) * np.float32(0.25)
    return Groups(grouped(_signed(_grid("iq2_xs")[words & 511], _seven_bit_signs(words >> 9)), 16), scale)


def _iq2_s(blocks: Blocks) -> Groups:
    high = planes(blocks[:, 66:74].reshape(len(blocks), -1, 1), 2, 4).reshape(len(blocks), -1)
    entries = blocks[:, 2:34].astype(np.uint16) | high.astype(np.uint16) << 8
    scale = half(blocks, 0) * (0.5 + _nibble_scales(blocks[:, 74:82])) * np.float32(0.25)
    return Groups(grouped(_signed(_grid("iq2_s")[entries], blocks[:, 34:66]), 16), scale)


def _iq3_xxs(blocks: Blocks) -> Groups:
    words = _word(blocks, 66, 8, "<u4")
    scale = half(blocks, 0) * (0.5 + (words >> 28).astype(np.float32)) * np.float32(0.5)
    return Groups(grouped(_signed(_grid("iq3_xxs")[blocks[:, 2:66]], _packed_signs(words)), 32), scale)


def _iq3_s(blocks: Blocks) -> Groups:
    high = np.unpackbits(blocks[:, 66:74], axis=1, bitorder="little").astype(np.uint16)
    entries = blocks[:, 2:66].astype(np.uint16) | high << 8
    scale = half(blocks, 0) * (1 + 2 * _nibble_scales(blocks[:, 106:110]))
    return Groups(grouped(_signed(_grid("iq3_s")[entries], blocks[:, 74:106]), 32), scale)


def _shifted(grid: Codes, minus: npt.NDArray[np.bool_]) -> Codes:
    """IQ1 values are an entry plus or minus an eighth: in eighths they are whole."""
    return grid * np.int8(8) + np.where(minus, np.int8(-1), np.int8(1))


def _iq1_s(blocks: Blocks) -> Groups:
    words = _word(blocks, 34, 8, "<u2")
    high = (words[:, :, None] >> np.array([0, 3, 6, 9], dtype=np.uint32)) & 7
    entries = blocks[:, 2:34].astype(np.uint32) | high.reshape(len(blocks), -1) << 8
    grid = _grid("iq1_s")[entries].reshape(-1, 8, 32)
    scale = half(blocks, 0) * (2 * ((words >> 12) & 7) + 1).astype(np.float32) * np.float32(0.125)
    return Groups(_shifted(grid, (words & 0x8000 != 0)[:, :, None]), scale)


def _iq1_m(blocks: Blocks) -> Groups:
    words = _word(blocks, 48, 4, "<u2")
    quarters = ((words & 0xF000) >> np.array([12, 8, 4, 0], dtype=np.uint32)).astype(np.uint16)
    d = np.bitwise_or.reduce(quarters, axis=1, keepdims=True).view("<f2").astype(np.float32)
    steps = ((words[:, :, None] >> np.array([0, 3, 6, 9], dtype=np.uint32)) & 7).reshape(len(blocks), -1)
    marks = planes(blocks[:, 32:48].reshape(len(blocks), -1, 1), 4, 2).reshape(len(blocks), -1)
    entries = blocks[:, :32].astype(np.uint16) | (marks & 7).astype(np.uint16) << 8
    codes = _shifted(_grid("iq1_s")[entries], (marks & 8 != 0)[:, :, None])
    return Groups(grouped(codes, 16), d * (2 * steps + 1).astype(np.float32) * np.float32(0.125))


CODEBOOK_DECODERS: dict[str, Callable[[Blocks], Groups]] = {
    "IQ2_XXS": _iq2_xxs,
    "IQ2_XS": _iq2_xs,
    "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs,
    "IQ3_S": _iq3_s,
    "IQ1_S": _iq1_s,
    "IQ1_M": _iq1_m,
}
