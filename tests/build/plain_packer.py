"""A packer in NumPy with the native one's interface, so that the build can be tested where the native module is absent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgewise.build.packing import BuildTools
from edgewise.checkpoints.gguf_types import BY_NAME

Bytes = npt.NDArray[np.uint8]


class PlainPacker:
    """Interleaves the bytes of `layout` rows; missing rows are zero. Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def packed_bytes(self, format: str, layout: int, rows: int, cols: int) -> int:
        padded = -(-rows // layout) * layout
        return -(-padded * BY_NAME[format].row_bytes(cols) // 64) * 64

    def pack(self, format: str, layout: int, rows: int, cols: int, source: Bytes) -> Bytes:
        self.calls += 1
        row_bytes, padded = BY_NAME[format].row_bytes(cols), -(-rows // layout) * layout
        full = np.zeros((padded, row_bytes), dtype=np.uint8)
        full[:rows] = source.reshape(rows, row_bytes)
        out = np.zeros(self.packed_bytes(format, layout, rows, cols), dtype=np.uint8)
        out[: full.size] = full.reshape(-1, layout, row_bytes).transpose(0, 2, 1).reshape(-1)
        return out

    def unpack(self, format: str, layout: int, rows: int, cols: int, packed: Bytes) -> Bytes:
        row_bytes, padded = BY_NAME[format].row_bytes(cols), -(-rows // layout) * layout
        blocks = packed[: padded * row_bytes].reshape(-1, row_bytes, layout)
        return np.ascontiguousarray(blocks.transpose(0, 2, 1).reshape(padded, row_bytes)[:rows]).reshape(-1)


def save_nothing_much(metadata: Mapping[str, Any], folder: Path) -> frozenset[int]:
    (folder / "tokenizer.json").write_text(str(len(metadata["tokenizer.ggml.tokens"])))
    return frozenset({int(metadata["tokenizer.ggml.eos_token_id"])})


def plain_tools() -> BuildTools:
    return BuildTools(PlainPacker(), save_nothing_much)
