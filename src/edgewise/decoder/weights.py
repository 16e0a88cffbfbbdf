"""The weights of an opened engine directory as the native code takes them, by canonical name."""

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgewise import _native
from edgewise.core.errors import EngineDirError

if TYPE_CHECKING:
    from edgewise.build.engine_dir import EngineDir


HUGE_PAGE_BYTES = 2 << 20


class Weights:
    """Looks tensors up: matrices and vectors are views of the mapped file, or of a copy of it in huge pages.

    A decode step reads every weight once, so pages of 4 KiB cost a page walk each time: the copy decodes 3-11 % faster.
    """

    def __init__(self, engine_dir: EngineDir, *, huge_pages: bool = False) -> None:
        self._dir = engine_dir
        self._data = copy_to_huge_pages(engine_dir.weights) if huge_pages else engine_dir.weights

    def _bytes(self, name: str) -> npt.NDArray[np.uint8]:
        tensor = self._dir.tensors.get(name)
        if tensor is None:
            raise EngineDirError(f"{self._dir.path}: tensor {name!r} is missing")
        return self._data[tensor.offset : tensor.offset + tensor.nbytes]

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


def copy_to_huge_pages(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """A read-only copy u8[n] that begins on a huge page, in memory that the kernel is asked to back with such pages."""
    memory = mmap.mmap(-1, data.nbytes + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    room = np.frombuffer(memory, np.uint8)
    start = -room.ctypes.data % HUGE_PAGE_BYTES
    copy = room[start : start + data.nbytes]
    middle = data.nbytes // 2
    with ThreadPoolExecutor(
        1
    ) as helper:  # most of the time goes into clearing pages, which two cores do at once
        first = helper.submit(np.copyto, copy[:middle], data[:middle])
        np.copyto(copy[middle:], data[middle:])
        first.result()
    copy.flags.writeable = False
    return copy
