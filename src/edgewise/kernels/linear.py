"""Packing of weights, quantisation of activations and the matrix product, on the calling thread.

Packed matrices are flat uint8 arrays that begin at a multiple of 64, in a layout of 4, 8 or 16 interleaved rows; a source
is the checkpoint's own rows of GGUF blocks. Formats bear GGUF's names (F32, Q4_K, ...). `reference_linear` defines in
NumPy what the native code computes. Everything here releases the GIL while it works. Raises ValueError for shapes,
sizes, formats and layouts that do not fit each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgewise import _native

Bytes = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]

ALIGNMENT = 64  # bytes; what the kernels' vector loads want of a matrix
GROUP = 32  # columns that share a scale
TOKEN_BLOCK = 64  # tokens whose groups lie side by side


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """Activations [tokens, cols] as int8 groups of 32, group-major within blocks of 64 tokens.

    codes: i8[tokens * groups * 32], scales: f32[tokens * groups], sums: i16[tokens * groups * 2]. A block of n tokens is
    [groups][n]; groups beyond cols are zero. `sums` are of the first and second 16 codes of a group.
    """

    tokens: int
    cols: int
    groups: int
    codes: npt.NDArray[np.int8]
    scales: F32
    sums: npt.NDArray[np.int16]


def aligned_bytes(count: int) -> Bytes:
    """An uninitialised array of `count` bytes that begins at a multiple of ALIGNMENT."""
    memory = np.empty(count + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + count]


def packed_bytes(format: str, layout: int, rows: int, cols: int) -> int:
    """Bytes of a packed matrix: the source's, rounded up to whole row blocks and to 64."""
    return _native.packed_bytes(format, layout, rows, cols)


def source_row_bytes(format: str, cols: int) -> int:
    """Bytes of one row of the checkpoint's blocks."""
    return _native.source_row_bytes(format, cols)


def pack(format: str, layout: int, rows: int, cols: int, source: Bytes) -> Bytes:
    """The packed form of `source`, u8[rows * source_row_bytes], in new memory."""
    packed = aligned_bytes(packed_bytes(format, layout, rows, cols))
    _native.pack(format, layout, rows, cols, source, packed)
    return packed


def unpack(format: str, layout: int, rows: int, cols: int, packed: Bytes) -> Bytes:
    """The inverse of `pack`, byte for byte."""
    source = np.empty(rows * source_row_bytes(format, cols), np.uint8)
    _native.unpack(format, layout, rows, cols, packed, source)
    return source


def dequantize_row(format: str, layout: int, rows: int, cols: int, packed: Bytes, row: int) -> F32:
    """Row `row` as f32[cols], equal to what GGUF's own dequantiser gives."""
    out = np.empty(cols, np.float32)
    _native.unpack_row(format, layout, rows, cols, packed, row, out)
    return out


def quantize(x: F32, *, isa: str = "auto") -> QuantizedRows:
    """x: f32[T, K] as the products of quantised weights take it. A group with NaN or infinity has scale NaN."""
    tokens, cols = x.shape
    groups = -(-cols // (8 * GROUP)) * 8
    cells = tokens * groups
    codes = np.empty(cells * GROUP, np.int8)
    scales = np.empty(cells, np.float32)
    sums = np.empty(cells * 2, np.int16)
    _native.quantize(isa, x, codes, scales, sums)
    return QuantizedRows(tokens, cols, groups, codes, scales, sums)


def linear(
    format: str, layout: int, rows: int, cols: int, packed: Bytes, x: F32, *, isa: str = "auto"
) -> F32:
    """x: f32[T, cols] times a packed matrix [rows, cols], f32[T, rows]. Quantised formats quantise x first."""
    y = np.empty((x.shape[0], rows), np.float32)
    _native.linear(isa, format, layout, rows, cols, packed, x, y)
    return y
