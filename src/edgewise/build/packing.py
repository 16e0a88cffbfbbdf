"""The door to the native packer, as `build/` needs it; tests pass a plain one instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

LAYOUTS = (4, 8, 16)  # rows interleaved
PLAIN = 0  # row-major f32, for vectors
SLAB_ROWS = 64  # a multiple of every layout: packed slabs of so many rows follow each other without gaps


class Packer(Protocol):
    """Row-major GGUF blocks to interleaved ones and back, byte for byte. All calls may run in several threads at once."""

    def packed_bytes(self, format: str, layout: int, rows: int, cols: int) -> int: ...

    def pack(self, format: str, layout: int, rows: int, cols: int, source: Bytes) -> Bytes: ...

    def unpack(self, format: str, layout: int, rows: int, cols: int, packed: Bytes) -> Bytes: ...


@dataclass(frozen=True, slots=True)
class BuildTools:
    """What a build takes from other rooms. `save_tokenizer(metadata, folder)` returns the ids that end a generation."""

    packer: Packer
    save_tokenizer: Callable[[Mapping[str, Any], Path], frozenset[int]]


def default_tools() -> BuildTools:
    """The native packer and the text room. Imported late: reading an engine directory needs neither."""
    import edgewise.kernels.linear as linear
    from edgewise.text.tokenizer import Tokenizer

    def save_tokenizer(metadata: Mapping[str, Any], folder: Path) -> frozenset[int]:
        tokenizer = Tokenizer.from_gguf(metadata)
        tokenizer.save(folder)
        return tokenizer.eos_token_ids

    return BuildTools(linear, save_tokenizer)
