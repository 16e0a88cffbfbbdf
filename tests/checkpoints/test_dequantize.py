"""Our dequantiser against the gguf package's, bit for bit, on random blocks of every type."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize as reference

from edgewise.checkpoints.dequantize import CHUNK_VALUES, DECODERS, can_dequantize, dequantize
from edgewise.checkpoints.gguf_types import BY_NAME, TYPES
from edgewise.core.errors import UnsupportedModelError


def assert_same_bits(ours: np.ndarray, theirs: np.ndarray) -> None:
    nan = np.isnan(ours) & np.isnan(theirs)
    same = (ours.view(np.uint32) == theirs.view(np.uint32)) | nan
    assert same.all(), f"first difference at {np.flatnonzero(~same)[0]}"


@pytest.mark.parametrize("dtype", [*DECODERS, "BF16", "F16", "F32"])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # random scales hold NaN and Inf on purpose
def test_equal_to_the_reference(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (300, BY_NAME[dtype].block_bytes), dtype=np.uint8)
    theirs = reference(blocks, gguf.GGMLQuantizationType[dtype]).astype(np.float32).reshape(-1)
    assert_same_bits(dequantize(blocks.reshape(-1), dtype), theirs)


def test_chunks_join_without_a_seam() -> None:
    rng = np.random.default_rng(2)
    num_blocks = CHUNK_VALUES // 32 + 3
    blocks = rng.integers(0, 100, (num_blocks, 34), dtype=np.uint8)
    theirs = reference(blocks, gguf.GGMLQuantizationType.Q8_0).reshape(-1)
    assert_same_bits(dequantize(blocks.reshape(-1), "Q8_0"), theirs)


def test_plain_types() -> None:
    assert dequantize(np.array([1.5, -2.0]).view(np.uint8), "F64").tolist() == [1.5, -2.0]
    assert dequantize(np.array([3, -4], dtype=np.int16).view(np.uint8), "I16").tolist() == [3.0, -4.0]


def test_a_type_without_decoder_is_refused_by_name() -> None:
    assert not can_dequantize("NVFP4")
    with pytest.raises(UnsupportedModelError, match="NVFP4"):
        dequantize(np.zeros(36, dtype=np.uint8), "NVFP4")


def test_block_sizes_agree_with_the_gguf_package() -> None:
    for number, kind in TYPES.items():
        theirs = gguf.GGMLQuantizationType(number)
        assert theirs.name == kind.name
        assert gguf.GGML_QUANT_SIZES[theirs] == (kind.block_size, kind.block_bytes)
