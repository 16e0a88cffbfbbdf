"""Storage types that have no kernel, turned into one that has, at build time.

Most keep every code: integers that a wider format holds as they are, with the same scale or one rounded to f16. Values are rounded
anew only where the scale groups are finer than the target's (Q2_K, IQ2_XS, IQ2_S, IQ1_M). `measure` says what is lost, and
engine.json records it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgewise.checkpoints.dequantize import DECODERS, dequantize, q3_k_parts
from edgewise.checkpoints.gguf_types import BY_NAME
from edgewise.checkpoints.groups import Groups

Bytes = npt.NDArray[np.uint8]

NATIVE_FORMATS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
CHUNK_VALUES = 1 << 20
SAMPLE_VALUES = 1 << 20  # values per tensor that the recorded error is measured on


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a storage type becomes a native one. `convert` takes blocks u8[B, block_bytes] and returns rows of the target."""

    target: str
    convert: Callable[[Bytes], Bytes]


def native_format(dtype: str) -> str | None:
    """The format a stored type is packed as; None when there is none."""
    if dtype in NATIVE_FORMATS:
        return dtype
    return CONVERSIONS[dtype].target if dtype in CONVERSIONS else None


def convert(raw: Bytes, dtype: str) -> Bytes:
    """Stored bytes of whole blocks, as bytes of the native format. A native type is returned as it is."""
    if dtype in NATIVE_FORMATS:
        return raw
    blocks = raw.reshape(-1, BY_NAME[dtype].block_bytes)
    step = CHUNK_VALUES // BY_NAME[dtype].block_size
    parts = [
        CONVERSIONS[dtype].convert(blocks[at : at + step]).reshape(-1) for at in range(0, len(blocks), step)
    ]
    return np.concatenate(parts)


def measure(raw: Bytes, dtype: str) -> dict[str, float]:
    """Error of a conversion on the first million values: `max_abs`, and `rms` relative to the values' own."""
    kind = BY_NAME[dtype]
    sample = raw[: SAMPLE_VALUES // kind.block_size * kind.block_bytes]
    before = dequantize(sample, dtype)
    error = dequantize(convert(sample, dtype), CONVERSIONS[dtype].target) - before
    power = float(np.mean(np.square(before, dtype=np.float64)))
    rms = float(np.mean(np.square(error, dtype=np.float64)))
    return {
        "max_abs": float(np.max(np.abs(error), initial=0.0)),
        "rms": (rms / power) ** 0.5 if power else 0.0,
    }


def _half_bytes(values: npt.NDArray[np.float32]) -> Bytes:
    """f32 [B] as the two bytes of an f16, [B, 2]; beyond f16's range the largest finite value."""
    limit = np.float32(65504.0)
    return np.clip(values, -limit, limit).astype("<f2").view(np.uint8).reshape(-1, 2)


def _q8_0_rows(codes: npt.NDArray[np.int8], scale: npt.NDArray[np.float32]) -> Bytes:
    """Q8_0 blocks from codes [B, 32] and scales [B]."""
    return np.concatenate([_half_bytes(scale), codes.view(np.uint8)], axis=1)


def _codes_to_q8_0(dtype: str) -> Callable[[Bytes], Bytes]:
    """Groups of 32 signed codes are Q8_0 groups already; the scale goes to f16."""

    def run(blocks: Bytes) -> Bytes:
        groups = DECODERS[dtype](blocks)
        return _q8_0_rows(groups.codes.reshape(-1, 32), groups.scale.reshape(-1))

    return run


def _mxfp4(blocks: Bytes) -> Bytes:
    """Scales are powers of two; those above f16's range hand up to three bits to the codes, which are 12 at most."""
    groups: Groups = DECODERS["MXFP4"](blocks)
    scale, codes = groups.scale.reshape(-1), groups.codes.reshape(-1, 32)
    exponent = np.frexp(scale)[1] - 1  # scale = 2^exponent
    down = np.clip(exponent - 15, 0, 3)
    return _q8_0_rows((codes << down[:, None]).astype(np.int8), np.ldexp(scale, -down).astype(np.float32))


def _values_to_q8_0(dtype: str) -> Callable[[Bytes], Bytes]:
    """Round to the nearest Q8_0 values of each group of 32; the scale is rounded to f16 before the codes are chosen."""

    def run(blocks: Bytes) -> Bytes:
        values = DECODERS[dtype](blocks).values().reshape(-1, 32)
        scale = (np.abs(values).max(axis=1) / 127).astype(np.float16).astype(np.float32)
        inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale != 0)
        codes = np.clip(np.rint(values * inverse[:, None]), -127, 127).astype(np.int8)
        return _q8_0_rows(codes, scale)

    return run


def _q3_k(blocks: Bytes) -> Bytes:
    """Q6_K with the same groups of 16, scales and codes: 3-bit codes and 6-bit scales fit its 6 and 8 bits."""
    codes, scales, d = q3_k_parts(blocks)
    unsigned = (codes.reshape(-1, 2, 128) + 32).astype(np.uint8)
    quarters = unsigned.reshape(-1, 2, 4, 32)
    low = (quarters[:, :, :2] & 15) | (quarters[:, :, 2:] << 4)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 1, 4, 1)
    high = np.bitwise_or.reduce((quarters >> 4) << shifts, axis=2)
    n = len(blocks)
    parts = [low.reshape(n, 128), high.reshape(n, 64), scales.view(np.uint8), _half_bytes(d.reshape(-1))]
    return np.concatenate(parts, axis=1).astype(np.uint8)


def _ternary(dtype: str) -> Callable[[Bytes], Bytes]:
    """-1, 0 and 1 with one scale for 256 values are Q4_0 codes 7, 8 and 9 with that scale for each 32."""

    def run(blocks: Bytes) -> Bytes:
        groups = DECODERS[dtype](blocks)
        halves = (groups.codes.reshape(-1, 2, 16) + 8).astype(np.uint8)
        scale = np.repeat(groups.scale.reshape(-1), 8)
        return np.concatenate([_half_bytes(scale), halves[:, 0] | (halves[:, 1] << 4)], axis=1)

    return run


def _to_f32(dtype: str) -> Callable[[Bytes], Bytes]:
    def run(blocks: Bytes) -> Bytes:
        return dequantize(np.ascontiguousarray(blocks).reshape(-1), dtype).view(np.uint8).reshape(-1, 4)

    return run


CONVERSIONS: dict[str, Conversion] = {
    "Q2_K": Conversion("Q8_0", _values_to_q8_0("Q2_K")),
    "Q3_K": Conversion("Q6_K", _q3_k),
    "IQ4_NL": Conversion("Q8_0", _codes_to_q8_0("IQ4_NL")),
    "IQ4_XS": Conversion("Q8_0", _codes_to_q8_0("IQ4_XS")),
    "MXFP4": Conversion("Q8_0", _mxfp4),
    "TQ1_0": Conversion("Q4_0", _ternary("TQ1_0")),
    "TQ2_0": Conversion("Q4_0", _ternary("TQ2_0")),
    **{name: Conversion("Q8_0", _codes_to_q8_0(name)) for name in ("IQ2_XXS", "IQ3_XXS", "IQ3_S", "IQ1_S")},
    **{name: Conversion("Q8_0", _values_to_q8_0(name)) for name in ("IQ2_XS", "IQ2_S", "IQ1_M")},
    "F64": Conversion("F32", _to_f32("F64")),
}
