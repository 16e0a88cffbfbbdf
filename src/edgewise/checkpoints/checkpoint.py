"""What a checkpoint is to the rest of Edgewise, whatever its file format: metadata, named tensors, raw and decoded bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor as stored. `shape` is row-major: the last axis is contiguous."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # "F32", "Q4_K", ...
    nbytes: int


class Checkpoint(Protocol):
    """An open checkpoint. Read-only; arrays stay valid after `close` (they keep the mapping alive)."""

    @property
    def path(self) -> Path: ...

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file it consists of, in order."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """GGUF keys to Python values; arrays are lists."""
        ...

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """The tensor's bytes as stored: a read-only view of the mapped file."""
        ...

    def dequantize(self, name: str) -> npt.NDArray[np.float32]:
        """f32 values in the tensor's shape. Raises UnsupportedModelError for a type without a decoder."""
        ...

    def close(self) -> None: ...
