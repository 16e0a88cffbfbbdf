"""Conversions of storage types without kernels: which lose nothing, and how much the others lose."""

from __future__ import annotations

import numpy as np
import pytest

from edgewise.build.convert import CONVERSIONS, NATIVE_FORMATS, convert, measure, native_format
from edgewise.checkpoints.dequantize import can_dequantize, dequantize
from edgewise.checkpoints.gguf_types import BY_NAME
from tests.support.tiny_gguf import random_blocks

EXACT = ("Q3_K", "IQ4_NL", "MXFP4", "TQ1_0", "TQ2_0")
F16_EPSILON = 2.0**-11


def stored(dtype: str, seed: int = 0) -> np.ndarray:
    blocks = random_blocks(dtype, 64, 512, 0.05, np.random.default_rng(seed))
    return np.ascontiguousarray(blocks).view(np.uint8).reshape(-1)


@pytest.mark.parametrize("dtype", EXACT)
def test_conversions_that_lose_nothing(dtype: str) -> None:
    raw = stored(dtype)
    before = dequantize(raw, dtype)
    after = dequantize(convert(raw, dtype), CONVERSIONS[dtype].target)
    assert np.array_equal(before, after)  # -0.0 and 0.0 are the same weight


@pytest.mark.parametrize("dtype", ["IQ4_XS", "IQ3_S", "IQ3_XXS", "IQ2_XXS", "IQ1_S"])
def test_codes_are_kept_and_scales_rounded_to_f16(dtype: str) -> None:
    raw = stored(dtype)
    before = dequantize(raw, dtype)
    after = dequantize(convert(raw, dtype), "Q8_0")
    # a normal f16 is within half a unit in the last place; a subnormal one within half of 2^-24, times a code up to 127
    assert np.all(np.abs(after - before) <= np.abs(before) * F16_EPSILON + 127 * 2.0**-25)


@pytest.mark.parametrize("dtype", ["Q2_K", "IQ2_XS", "IQ2_S", "IQ1_M"])
def test_finer_groups_are_within_a_q8_0_step(dtype: str) -> None:
    raw = stored(dtype)
    before = dequantize(raw, dtype).reshape(-1, 32)
    after = dequantize(convert(raw, dtype), "Q8_0").reshape(-1, 32)
    largest = np.abs(before).max(axis=1, keepdims=True)
    # half a step of largest/127, and the scale's rounding to f16 over codes up to 127
    assert np.all(np.abs(after - before) <= largest * (0.5 / 127 + 2 * F16_EPSILON))
    assert measure(raw, dtype)["rms"] < 0.01


def test_mxfp4_outside_f16_scales() -> None:
    raw = np.zeros((4, 17), dtype=np.uint8)
    raw[:, 0] = [127 + 18, 127 + 16, 127 - 23, 127 - 100]  # scales 2^17, 2^15, 2^-24, 2^-101
    raw[:, 1:] = 0x72  # codes 2 (low) and 12 (high)
    before = dequantize(raw.reshape(-1), "MXFP4").reshape(4, 32)
    after = dequantize(convert(raw.reshape(-1), "MXFP4"), "Q8_0").reshape(4, 32)
    assert np.array_equal(before[:3], after[:3])
    assert np.all(after[3] == 0)  # too small for f16, and measured as such
    assert measure(raw[3], "MXFP4")["rms"] == 1.0


def test_f64_becomes_f32() -> None:
    raw = np.array([1.5, -0.1]).view(np.uint8)
    assert convert(raw, "F64").view(np.float32).tolist() == [1.5, np.float32(-0.1)]


@pytest.mark.parametrize("dtype", NATIVE_FORMATS)
def test_native_formats_are_left_alone(dtype: str) -> None:
    raw = np.arange(BY_NAME[dtype].block_bytes, dtype=np.uint8)
    assert convert(raw, dtype) is raw
    assert native_format(dtype) == dtype


def test_every_conversion_starts_from_a_type_we_decode_and_ends_in_a_native_one() -> None:
    for dtype, conversion in CONVERSIONS.items():
        assert can_dequantize(dtype)
        assert conversion.target in NATIVE_FORMATS
    assert native_format("NVFP4") is None
