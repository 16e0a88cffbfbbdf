"""The values of GGUF tensors, in NumPy: the definition that packed weights are measured against.

A decoder turns the blocks of one type into integer codes in scale groups, so that value = scale * code (+ minimum);
`dequantize` multiplies them out, and `build/` moves codes to another format without going through floats.
Every product is made in the order ggml makes it, so values agree with ggml's own bit for bit.
Source: the block layouts of the ggml project.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from edgewise.checkpoints.dequantize_iq import CODEBOOK_DECODERS
from edgewise.checkpoints.gguf_types import BY_NAME
from edgewise.checkpoints.groups import F32, Blocks, Groups, grouped, half, planes
from edgewise.core.errors import UnsupportedModelError

CHUNK_VALUES = 1 << 20  # decoded at a time: bounds the temporaries to some 20 MB

IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.int8
)
FP4_VALUES = np.array(
    [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.int8
)  # e2m1, doubled


def _nibbles(blocks: Blocks, start: int, count: int, run: int) -> npt.NDArray[np.uint8]:
    """4-bit codes of `count` bytes: the low halves of each `run` bytes, then their high halves. [B, 2 * count]."""
    part = blocks[:, start : start + count].reshape(len(blocks), -1, 1, run)
    shifts = np.array([0, 4], dtype=np.uint8).reshape(1, 1, 2, 1)
    return ((part >> shifts) & np.uint8(15)).reshape(len(blocks), -1)


def _fifth_bits(blocks: Blocks, start: int) -> npt.NDArray[np.uint8]:
    """The 32 high bits of a Q5_0 or Q5_1 block, moved to bit 4. [B, 32]."""
    return np.unpackbits(blocks[:, start : start + 4], axis=1, bitorder="little") << np.uint8(4)


def _q4_0(blocks: Blocks) -> Groups:
    return Groups(grouped(_nibbles(blocks, 2, 16, 16).astype(np.int8) - 8, 32), half(blocks, 0))


def _q4_1(blocks: Blocks) -> Groups:
    return Groups(grouped(_nibbles(blocks, 4, 16, 16), 32), half(blocks, 0), half(blocks, 2))


def _q5_0(blocks: Blocks) -> Groups:
    codes = (_nibbles(blocks, 6, 16, 16) | _fifth_bits(blocks, 2)).astype(np.int8) - 16
    return Groups(grouped(codes, 32), half(blocks, 0))


def _q5_1(blocks: Blocks) -> Groups:
    codes = _nibbles(blocks, 8, 16, 16) | _fifth_bits(blocks, 4)
    return Groups(grouped(codes, 32), half(blocks, 0), half(blocks, 2))


def _q8_0(blocks: Blocks) -> Groups:
    return Groups(grouped(blocks[:, 2:].view(np.int8), 32), half(blocks, 0))


def _q2_k(blocks: Blocks) -> Groups:
    scales = blocks[:, :16]
    codes = planes(blocks[:, 16:80].reshape(-1, 2, 32), 2, 4)
    scale = half(blocks, 80) * (scales & 15).astype(np.float32)
    minimum = half(blocks, 82) * (scales >> 4).astype(np.float32)
    return Groups(grouped(codes, 16), scale, -minimum)


def q3_k_parts(blocks: Blocks) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8], F32]:
    """Codes [B, 16, 16] in [-4, 3], integer scales [B, 16] in [-32, 31] and the block's scale [B, 1]."""
    low = planes(blocks[:, 32:96].reshape(-1, 2, 32), 2, 4).reshape(len(blocks), -1)
    high = planes(blocks[:, :32].reshape(-1, 1, 32), 1, 8).reshape(len(blocks), -1)
    codes = low.astype(np.int8) + (high.astype(np.int8) - 1) * 4
    low_scales = planes(blocks[:, 96:104].reshape(-1, 1, 8), 4, 2).reshape(-1, 16)
    high_scales = planes(blocks[:, 104:108].reshape(-1, 1, 4), 2, 4).reshape(-1, 16)
    scales = (low_scales | high_scales << 4).astype(np.int8) - 32
    return grouped(codes, 16), scales, half(blocks, 108)


def _q3_k(blocks: Blocks) -> Groups:
    codes, scales, d = q3_k_parts(blocks)
    return Groups(codes, d * scales.astype(np.float32))


def _k_scales(blocks: Blocks) -> tuple[F32, F32]:
    """Scales and minima of Q4_K and Q5_K: eight 6-bit pairs in twelve bytes at offset 4. f32 [B, 8] each."""
    first, second, mixed = (blocks[:, 4 + 4 * i : 8 + 4 * i] for i in range(3))
    scales = np.concatenate([first & 63, (mixed & 15) | ((first >> 2) & 48)], axis=1)
    minima = np.concatenate([second & 63, (mixed >> 4) | ((second >> 2) & 48)], axis=1)
    return half(blocks, 0) * scales.astype(np.float32), -(half(blocks, 2) * minima.astype(np.float32))


def _q4_k(blocks: Blocks) -> Groups:
    return Groups(grouped(_nibbles(blocks, 16, 128, 32), 32), *_k_scales(blocks))


def _q5_k(blocks: Blocks) -> Groups:
    high = planes(blocks[:, 16:48].reshape(-1, 1, 32), 1, 8).reshape(len(blocks), -1)
    return Groups(grouped(_nibbles(blocks, 48, 128, 32) | high << 4, 32), *_k_scales(blocks))


def _q6_k(blocks: Blocks) -> Groups:
    high = planes(blocks[:, 128:192].reshape(-1, 2, 32), 2, 4).reshape(len(blocks), -1)
    codes = (_nibbles(blocks, 0, 128, 64) | high << 4).astype(np.int8) - 32
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    return Groups(grouped(codes, 16), half(blocks, 208) * scales)


def _iq4_nl(blocks: Blocks) -> Groups:
    return Groups(grouped(IQ4_VALUES[_nibbles(blocks, 2, 16, 16)], 32), half(blocks, 0))


def _iq4_xs(blocks: Blocks) -> Groups:
    low = planes(blocks[:, 4:8].reshape(-1, 4, 1), 4, 2).reshape(len(blocks), 8)
    high_bits = np.ascontiguousarray(blocks[:, 2:4]).view("<u2")
    high = ((high_bits >> (np.arange(8, dtype=np.uint16) * 2)) & 3).astype(np.uint8)
    scales = (low | high << 4).astype(np.int8) - 32
    codes = IQ4_VALUES[_nibbles(blocks, 8, 128, 16)]
    return Groups(grouped(codes, 32), half(blocks, 0) * scales.astype(np.float32))


def _mxfp4(blocks: Blocks) -> Groups:
    exponent = blocks[:, :1].astype(np.uint32)  # e8m0; halved, as the codes are doubled
    bits = np.where(exponent < 2, np.uint32(0x200000) << exponent, (exponent - 1) << np.uint32(23))
    return Groups(grouped(FP4_VALUES[_nibbles(blocks, 1, 16, 16)], 32), bits.view(np.float32))


def _tq1_0(blocks: Blocks) -> Groups:
    """Base-3 digits, five to a byte (four in the last four bytes), taken from the top by multiplying in u8."""
    powers = np.array([1, 3, 9, 27, 81], dtype=np.uint8).reshape(1, 5, 1)
    runs = ((0, 32, 5), (32, 48, 5), (48, 52, 4))
    digits = [(blocks[:, None, a:b] * powers[:, :n]).reshape(len(blocks), -1) for a, b, n in runs]
    codes = ((np.concatenate(digits, axis=1).astype(np.uint16) * 3) >> 8).astype(np.int8) - 1
    return Groups(grouped(codes, 256), half(blocks, 52))


def _tq2_0(blocks: Blocks) -> Groups:
    codes = planes(blocks[:, :64].reshape(-1, 2, 32), 2, 4).astype(np.int8) - 1
    return Groups(grouped(codes.reshape(len(blocks), -1), 256), half(blocks, 64))


DECODERS: dict[str, Callable[[Blocks], Groups]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
    **CODEBOOK_DECODERS,
}

_PLAIN: dict[str, str] = {
    "F32": "<f4",
    "F16": "<f2",
    "F64": "<f8",
    "I8": "i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
}


def can_dequantize(dtype: str) -> bool:
    """Whether `dequantize` knows the type."""
    return dtype in DECODERS or dtype in _PLAIN or dtype == "BF16"


def dequantize(raw: npt.NDArray[np.uint8], dtype: str) -> F32:
    """The values of stored bytes, as a new f32 array of one dimension.

    Raises UnsupportedModelError for a type without a decoder.
    """
    if dtype == "BF16":
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    if dtype in _PLAIN:
        return raw.view(_PLAIN[dtype]).astype(np.float32)
    decode = DECODERS.get(dtype)
    if decode is None:
        raise UnsupportedModelError(f"tensor type {dtype} cannot be decoded yet")
    kind = BY_NAME[dtype]
    blocks = raw.reshape(-1, kind.block_bytes)
    out = np.empty((len(blocks), kind.block_size), dtype=np.float32)
    step = CHUNK_VALUES // kind.block_size
    for start in range(0, len(blocks), step):
        out[start : start + step] = decode(blocks[start : start + step]).values()
    return out.reshape(-1)
