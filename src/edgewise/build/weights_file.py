"""Writes weights.bin: tensors are cut into slabs of rows, packed by a few threads and written in order.

Memory stays at a few slabs however large a tensor is; a slab's packed bytes follow the previous one's without a gap.
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgewise.build.engine_dir import ALIGNMENT, PROBE_BYTES, PackedTensor
from edgewise.build.packing import PLAIN, SLAB_ROWS

Bytes = npt.NDArray[np.uint8]

SLAB_BYTES = 8 << 20
FLUSH_BYTES = 64 << 20  # written back as we go, so that the final fsync has little left to wait for


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor to write. `rows_at(start, stop)` gives its packed bytes for some rows and may run in any thread.

    `slab_rows` divides the rows into slabs: a multiple of SLAB_ROWS, or all rows at once.
    """

    name: str
    format: str
    layout: int
    rows: int
    cols: int
    slab_rows: int
    rows_at: Callable[[int, int], Bytes]


def slab_rows(rows: int, row_bytes: int, layout: int) -> int:
    """Rows per slab: about SLAB_BYTES, or all of them for plain vectors and small matrices."""
    if layout == PLAIN or rows * row_bytes <= SLAB_BYTES:
        return rows
    return max(1, SLAB_BYTES // row_bytes // SLAB_ROWS) * SLAB_ROWS


class WeightsFile:
    """weights.bin being written. Use as a context manager; `write_all` once."""

    def __init__(self, path: Path, *, num_threads: int) -> None:
        self._file = path.open("wb")
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="edgewise-pack")
        self._ahead = num_threads * 2
        self._unflushed = 0

    def __enter__(self) -> WeightsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._file.close()

    def write_all(self, plan: Iterable[PlannedTensor]) -> Iterator[PackedTensor]:
        """Write tensors in order, yielding each one's place; the pool stays a few slabs ahead, across tensors."""
        pending: deque[tuple[PlannedTensor, int, Future[Bytes]]] = deque()
        writing = _Writing()
        for tensor in plan:
            for start in range(0, tensor.rows, tensor.slab_rows):
                stop = min(start + tensor.slab_rows, tensor.rows)
                pending.append((tensor, stop, self._pool.submit(tensor.rows_at, start, stop)))
                if len(pending) > self._ahead:
                    yield from self._write_slab(*pending.popleft(), writing)
        while pending:
            yield from self._write_slab(*pending.popleft(), writing)

    def _write_slab(
        self, tensor: PlannedTensor, stop: int, packed: Future[Bytes], writing: _Writing
    ) -> Iterator[PackedTensor]:
        data = packed.result()
        if writing.nbytes == 0:
            self._pad(writing)
        if writing.nbytes < PROBE_BYTES:
            writing.probe = zlib.crc32(data[: PROBE_BYTES - writing.nbytes].data, writing.probe)
        writing.crc = zlib.crc32(data.data, writing.crc)
        writing.nbytes += len(data)
        self._file.write(data.data)
        self._write_back(len(data))
        if stop == tensor.rows:
            yield PackedTensor(
                tensor.name,
                tensor.format,
                tensor.layout,
                tensor.rows,
                tensor.cols,
                writing.offset,
                writing.nbytes,
                writing.crc,
                writing.probe,
            )
            writing.next_tensor()

    def _pad(self, writing: _Writing) -> None:
        gap = -writing.offset % ALIGNMENT
        self._file.write(bytes(gap))
        writing.offset += gap

    def _write_back(self, num_bytes: int) -> None:
        """Start writing dirty pages to the disk early; a hint, so a file system that lacks it costs nothing."""
        self._unflushed += num_bytes
        if self._unflushed >= FLUSH_BYTES:
            self._file.flush()
            os.fdatasync(self._file.fileno())
            self._unflushed = 0


@dataclass(slots=True)
class _Writing:
    """The tensor being written: where it starts, how much of it is there, its running checksums."""

    offset: int = 0
    nbytes: int = 0
    crc: int = 0
    probe: int = 0

    def next_tensor(self) -> None:
        self.offset += self.nbytes
        self.nbytes = self.crc = self.probe = 0
