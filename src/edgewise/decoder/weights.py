"""The weights of an opened engine directory as the native code takes them, by canonical name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgewise import _native
from edgewise.core.errors import EngineDirError

if TYPE_CHECKING:
    from edgewise.build.engine_dir import EngineDir


class Weights:
    """Looks tensors up; nothing is copied: matrices and vectors are views of the mapped file, which they keep alive."""

    def __init__(self, engine_dir: EngineDir) -> None:
        self._dir = engine_dir

    def _bytes(self, name: str) -> npt.NDArray[np.uint8]:
        tensor = self._dir.tensors.get(name)
        if tensor is None:
            raise EngineDirError(f"{self._dir.path}: tensor {name!r} is missing")
        return self._dir.weights[tensor.offset : tensor.offset + tensor.nbytes]

    def matrix(self, name: str, rows: int, cols: int) -> _native.Matrix:
        """A packed matrix [rows, cols]. Raises EngineDirError when it is missing or of another shape."""
        data = self._bytes(name)
        tensor = self._dir.tensors[name]
        if (tensor.rows, tensor.cols) != (rows, cols):
            raise EngineDirError(
                f"{self._dir.path}: tensor {name!r} is [{tensor.rows}, {tensor.cols}], the model needs [{rows}, {cols}]"
            )
        return _native.Matrix(tensor.format, tensor.layout, rows, cols, data)

    def vector(self, name: str, size: int) -> npt.NDArray[np.float32]:
        """A plain vector f32[size]."""
        values = self._bytes(name).view(np.float32)
        if values.size != size:
            raise EngineDirError(f"{self._dir.path}: tensor {name!r} has {values.size} values, not {size}")
        return values

    def optional_vector(self, name: str, size: int, *, present: bool) -> npt.NDArray[np.float32] | None:
        return self.vector(name, size) if present else None
