"""Packing, quantisation and products through the Python doors: against GGUF's dequantiser and the NumPy definition."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.kernels import linear, reference_linear
from edgewise.kernels.native import available_isas, layout_of
from tests.support.examples import examples

QUANTIZED = {
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
}
FLOATS = {"F32": (1, 4), "F16": (1, 2), "BF16": (1, 2)}
FORMATS = QUANTIZED | FLOATS
SCALE_BYTES = {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}  # where f16 fields begin
F32 = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


def random_source(format: str, rows: int, cols: int, seed: int) -> Bytes:
    """Rows of blocks with any codes and f16 scales of ordinary size."""
    rng = np.random.default_rng(seed)
    if format in FLOATS:
        values = rng.normal(size=(rows, cols)).astype(np.float32)
        return to_floats(format, values)
    block_cols, block_bytes = FORMATS[format]
    blocks = rng.integers(0, 256, (rows * cols // block_cols, block_bytes), dtype=np.uint8)
    for at in SCALE_BYTES.get(format, (0,)):
        scales = rng.uniform(0.001, 0.01, len(blocks)).astype(np.float16)
        if at == 2 and format in ("Q4_1", "Q5_1"):
            scales = -scales * 8
        blocks[:, at : at + 2] = scales[:, None].view(np.uint8)
    return blocks.reshape(-1)


def to_floats(format: str, values: F32) -> Bytes:
    if format == "F16":
        return values.astype(np.float16).reshape(-1).view(np.uint8)
    if format == "BF16":
        return (values.reshape(-1).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values.reshape(-1).view(np.uint8)


def weights_of(format: str, rows: int, cols: int, source: Bytes) -> F32:
    """The source's values by GGUF's own reader."""
    kind = GGMLQuantizationType[format]
    return np.asarray(dequantize(source.reshape(rows, -1), kind), np.float32).reshape(rows, cols)


@pytest.mark.parametrize("layout", [4, 8, 16])
@pytest.mark.parametrize("format", FORMATS)
def test_pack_is_lossless(format: str, layout: int) -> None:
    rows, cols = 19, 768
    source = random_source(format, rows, cols, 1)
    packed = linear.pack(format, layout, rows, cols, source)
    assert packed.ctypes.data % 64 == 0
    assert packed.size == linear.packed_bytes(format, layout, rows, cols)
    np.testing.assert_array_equal(linear.unpack(format, layout, rows, cols, packed), source)
    expected = weights_of(format, rows, cols, source)
    for row in range(rows):
        np.testing.assert_array_equal(
            linear.dequantize_row(format, layout, rows, cols, packed, row), expected[row]
        )


def test_packed_size_is_the_source_s() -> None:
    for format, (block_cols, block_bytes) in FORMATS.items():
        assert linear.source_row_bytes(format, 768) == 768 // block_cols * block_bytes
        assert linear.packed_bytes(format, 8, 64, 768) == 64 * linear.source_row_bytes(format, 768)


@pytest.mark.parametrize("isa", available_isas())
@settings(max_examples=examples(30), deadline=None)
@given(
    tokens=st.integers(1, 130),
    groups=st.integers(1, 20),
    exponent=st.integers(-44, 37),
    seed=st.integers(0, 2**32 - 1),
)
def test_quantize_equals_the_definition(isa: str, tokens: int, groups: int, exponent: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(tokens, groups * 32)) * 10.0**exponent).astype(np.float32)
    x[rng.random(x.shape) < 0.001] = rng.choice([np.nan, np.inf, -np.inf, 0.0])
    got = linear.quantize(x, isa=isa)
    codes, scales = reference_linear.quantize(x)
    assert got.groups % 8 == 0
    for first in range(0, tokens, linear.TOKEN_BLOCK):
        n = min(linear.TOKEN_BLOCK, tokens - first)
        cells = slice(first * got.groups, (first + n) * got.groups)
        shape = (got.groups, n)
        block_codes = got.codes.reshape(-1, 32)[cells].reshape(*shape, 32)[:groups]
        np.testing.assert_array_equal(block_codes.transpose(1, 0, 2), codes[first : first + n])
        np.testing.assert_array_equal(got.scales[cells].reshape(shape)[:groups].T, scales[first : first + n])
        halves = block_codes.reshape(groups, n, 2, 16).sum(axis=3)
        np.testing.assert_array_equal(got.sums.reshape(-1, 2)[cells].reshape(*shape, 2)[:groups], halves)
        assert not got.scales[cells].reshape(shape)[groups:].any()


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 9, 65])
def test_linear_is_the_product(isa: str, format: str, tokens: int) -> None:
    rows, cols, layout = 77, 768, layout_of(isa)
    source = random_source(format, rows, cols, 2)
    weight = weights_of(format, rows, cols, source)
    x = np.random.default_rng(3).normal(size=(tokens, cols)).astype(np.float32)
    y = linear.linear(format, layout, rows, cols, linear.pack(format, layout, rows, cols, source), x, isa=isa)
    quantized = format in QUANTIZED
    error = np.abs(y - reference_linear.linear(weight, x, quantized=quantized))
    bound = reference_linear.error_bound(weight, x, quantized=quantized)
    worst = np.unravel_index(np.argmax(error / bound), error.shape)
    assert (error <= bound).all(), f"cell {worst}: off by {error[worst]}, allowed {bound[worst]}"


@pytest.mark.parametrize("format", FORMATS)
def test_a_token_s_result_is_its_own(format: str) -> None:
    rows, cols, tokens = 40, 512, 70
    layout = layout_of()
    packed = linear.pack(format, layout, rows, cols, random_source(format, rows, cols, 4))
    x = np.random.default_rng(5).normal(size=(tokens, cols)).astype(np.float32)
    whole = linear.linear(format, layout, rows, cols, packed, x)
    for first, n in ((0, 1), (3, 2), (64, 6), (10, 30)):
        part = linear.linear(format, layout, rows, cols, packed, x[first : first + n].copy())
        np.testing.assert_array_equal(part, whole[first : first + n])


@pytest.mark.parametrize("format", FORMATS)
def test_every_isa_gives_the_same_bits(format: str) -> None:
    rows, cols, tokens = 33, 512, 11
    source = random_source(format, rows, cols, 6)
    x = np.random.default_rng(7).normal(size=(tokens, cols)).astype(np.float32)
    x[2, 40] = np.nan
    results = [
        linear.linear(format, layout, rows, cols, linear.pack(format, layout, rows, cols, source), x, isa=isa)
        for isa in available_isas()
        for layout in ((4, 8, 16) if isa == "generic" else (layout_of(isa),))
    ]
    assert np.isnan(results[0][2]).all() and np.isfinite(np.delete(results[0], 2, 0)).all()
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_bad_arguments_are_value_errors() -> None:
    rows, cols = 8, 64
    source = random_source("Q4_0", rows, cols, 8)
    packed = linear.pack("Q4_0", 8, rows, cols, source)
    x = np.zeros((2, cols), np.float32)
    with pytest.raises(ValueError, match="unknown weight format 'Q9_9'"):
        linear.packed_bytes("Q9_9", 8, rows, cols)
    with pytest.raises(ValueError, match="layout must be 4, 8 or 16"):
        linear.packed_bytes("Q4_0", 7, rows, cols)
    with pytest.raises(ValueError, match="positive multiple of 256 columns, not 64"):
        linear.packed_bytes("Q4_K", 8, rows, cols)
    with pytest.raises(ValueError, match="source must have 288 bytes, not 287"):
        linear.pack("Q4_0", 8, rows, cols, source[:-1])
    with pytest.raises(ValueError, match="packed must have"):
        linear.unpack("Q4_0", 8, rows, cols, packed[:-1])
    with pytest.raises(ValueError, match="row 8 of 8"):
        linear.dequantize_row("Q4_0", 8, rows, cols, packed, 8)
    with pytest.raises(ValueError, match=r"x must be \[T, cols\]"):
        linear.linear("Q4_0", 8, rows, cols, packed, x[:, :32].copy())
    with pytest.raises(ValueError, match="x must be a C-contiguous float32 array"):
        linear.linear("Q4_0", 8, rows, cols, packed, x.astype(np.float64))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="instruction set"):
        linear.linear("Q4_0", 8, rows, cols, packed, x, isa="avx1024")
    assert linear.linear("Q4_0", 8, rows, cols, packed, x[:0]).shape == (0, rows)
