"""What a build writes: for each tensor its format, its slabs, and how to make their packed bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from edgewise.architectures import ModelMap, SourceTensor
from edgewise.build.convert import convert, native_format
from edgewise.build.engine_dir import EngineDir, PackedTensor
from edgewise.build.packing import PLAIN, Packer
from edgewise.build.weights_file import PlannedTensor, slab_rows
from edgewise.checkpoints import Checkpoint
from edgewise.checkpoints.gguf_types import BY_NAME
from edgewise.core.errors import UnsupportedModelError

Bytes = npt.NDArray[np.uint8]


def plan_checkpoint(
    checkpoint: Checkpoint, model: ModelMap, layout: int, packer: Packer
) -> Iterator[PlannedTensor]:
    """All tensors of a described checkpoint. Raises UnsupportedModelError for a type that has no kernel."""
    for name, source in model.tensors.items():
        info = checkpoint.tensors[source.name]
        if len(info.shape) == 1:
            yield _plan_vector(checkpoint, name, source)
        else:
            yield _plan_matrix(checkpoint, name, source, layout, packer)


def _row_range(checkpoint: Checkpoint, source: SourceTensor) -> tuple[int, int]:
    rows = checkpoint.tensors[source.name].shape[0]
    start, stop, _ = (source.rows or slice(None)).indices(rows)
    return start, stop


def _plan_vector(checkpoint: Checkpoint, name: str, source: SourceTensor) -> PlannedTensor:
    first, last = _row_range(checkpoint, source)

    def values(start: int, stop: int) -> Bytes:
        part = checkpoint.dequantize(source.name)[first:last] + np.float32(source.add)
        return np.ascontiguousarray(part, dtype="<f4").view(np.uint8)

    return PlannedTensor(name, "F32", PLAIN, 1, last - first, 1, values)


def _plan_matrix(
    checkpoint: Checkpoint, name: str, source: SourceTensor, layout: int, packer: Packer
) -> PlannedTensor:
    info = checkpoint.tensors[source.name]
    target = native_format(info.dtype)
    if target is None or len(info.shape) != 2 or source.add:
        raise UnsupportedModelError(
            f"{checkpoint.path}: tensor {source.name!r} of type {info.dtype} and shape {list(info.shape)} has no kernel"
        )
    (first, last), cols = _row_range(checkpoint, source), info.shape[1]
    stored_row = BY_NAME[info.dtype].row_bytes(cols)
    raw = checkpoint.raw(source.name)

    def packed(start: int, stop: int) -> Bytes:
        rows = raw[(first + start) * stored_row : (first + stop) * stored_row]
        return packer.pack(target, layout, stop - start, cols, convert(rows, info.dtype))

    size = slab_rows(last - first, BY_NAME[target].row_bytes(cols), layout)
    return PlannedTensor(name, target, layout, last - first, cols, size, packed)


def plan_repack(tensor: PackedTensor, source: EngineDir, layout: int, packer: Packer) -> PlannedTensor:
    """The same tensor for another layout: its slabs are unpacked and packed again."""
    data = source.weights[tensor.offset : tensor.offset + tensor.nbytes]
    if tensor.layout == PLAIN:
        return PlannedTensor(tensor.name, "F32", PLAIN, 1, tensor.cols, 1, lambda start, stop: data)
    row_bytes = BY_NAME[tensor.format].row_bytes(tensor.cols)

    def packed(start: int, stop: int) -> Bytes:
        end = len(data) if stop == tensor.rows else stop * row_bytes
        rows = packer.unpack(
            tensor.format, tensor.layout, stop - start, tensor.cols, data[start * row_bytes : end]
        )
        return packer.pack(tensor.format, layout, stop - start, tensor.cols, rows)

    size = slab_rows(tensor.rows, row_bytes, layout)
    return PlannedTensor(tensor.name, tensor.format, layout, tensor.rows, tensor.cols, size, packed)
