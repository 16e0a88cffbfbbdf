"""GGUF checkpoints: one file, or the pieces `name-00001-of-0000N.gguf` that llama.cpp's splitter writes, mapped read-only."""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from edgewise.checkpoints.checkpoint import TensorInfo
from edgewise.checkpoints.dequantize import dequantize
from edgewise.checkpoints.gguf_header import GgufHeader, read_header
from edgewise.core.errors import CheckpointError

SPLIT_NAME = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")


class GgufCheckpoint:
    """An open GGUF model. Use `open_gguf`; implements `Checkpoint`."""

    def __init__(self, path: Path, parts: list[tuple[Path, npt.NDArray[np.uint8], GgufHeader]]) -> None:
        self.path = path
        self.files = tuple(part for part, _, _ in parts)
        self.metadata: Mapping[str, Any] = MappingProxyType(parts[0][2].metadata)
        tensors: dict[str, TensorInfo] = {}
        self._places: dict[str, tuple[npt.NDArray[np.uint8], int]] = {}
        for part, data, header in parts:
            for name, info in header.tensors.items():
                if name in tensors:
                    raise CheckpointError(
                        f"{part}: tensor {name!r}: an earlier part of the split file has it too"
                    )
                tensors[name] = info
                self._places[name] = (data, header.offsets[name])
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(tensors)

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """The tensor's bytes as stored: a read-only view of the mapped file. KeyError for an unknown name."""
        data, offset = self._places[name]
        return data[offset : offset + self.tensors[name].nbytes]

    def dequantize(self, name: str) -> npt.NDArray[np.float32]:
        """f32 values in the tensor's shape. Raises UnsupportedModelError for a type without a decoder."""
        info = self.tensors[name]
        return dequantize(self.raw(name), info.dtype).reshape(info.shape)

    def close(self) -> None:
        """Let go of the mappings; they vanish with the last array that came from them."""
        self._places.clear()


def open_gguf(path: Path) -> GgufCheckpoint:
    """Open a GGUF file, or all parts of a split one given its first part.

    Raises CheckpointError naming the file and the field at fault.
    """
    first = _open_part(path)
    return GgufCheckpoint(path, [first, *_open_rest(path, first[2])])


def split_files(path: Path) -> list[Path]:
    """The files of a model by name alone: the path itself, or all parts of a split one that are there."""
    match = SPLIT_NAME.match(path.name)
    if match is None:
        return [path]
    names = (
        f"{match['stem']}-{number:05d}-of-{match['count']}.gguf"
        for number in range(1, int(match["count"]) + 1)
    )
    return [part for part in (path.with_name(name) for name in names) if part.is_file()]


def _open_part(path: Path) -> tuple[Path, npt.NDArray[np.uint8], GgufHeader]:
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise CheckpointError(f"{path}: magic: the file is empty") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    header = read_header(path, data)
    return path, np.frombuffer(data, dtype=np.uint8), header


def _open_rest(path: Path, first: GgufHeader) -> list[tuple[Path, npt.NDArray[np.uint8], GgufHeader]]:
    """The further parts of a split file, checked to be the ones that belong to it."""
    count = first.metadata.get("split.count", 0)
    if not isinstance(count, int) or count <= 1:
        return []
    match = SPLIT_NAME.match(path.name)
    number = first.metadata.get("split.no", 0)
    if number != 0:
        stem = match["stem"] if match else path.stem
        raise CheckpointError(
            f"{path}: metadata key 'split.no': this is part {number + 1} of a split model",
            hint=f"open the first part, {stem}-00001-of-{count:05d}.gguf",
        )
    if match is None or int(match["count"]) != count:
        raise CheckpointError(
            f"{path}: metadata key 'split.count': one of {count} parts, but the file is not named like one",
            hint=f"name the parts NAME-00001-of-{count:05d}.gguf and so on",
        )
    parts = [_open_numbered(path, match["stem"], number, count) for number in range(1, count)]
    _check_total(path, first, parts)
    return parts


def _open_numbered(
    path: Path, stem: str, number: int, count: int
) -> tuple[Path, npt.NDArray[np.uint8], GgufHeader]:
    part = path.with_name(f"{stem}-{number + 1:05d}-of-{count:05d}.gguf")
    if not part.is_file():
        raise CheckpointError(f"{part}: part {number + 1} of {count} of the split model is missing")
    opened = _open_part(part)
    found = (opened[2].metadata.get("split.no"), opened[2].metadata.get("split.count"))
    if found != (number, count):
        raise CheckpointError(
            f"{part}: metadata key 'split.no': says part {found[0]} of {found[1]}, expected {number} of {count}"
        )
    return opened


def _check_total(path: Path, first: GgufHeader, parts: list[tuple[Path, Any, GgufHeader]]) -> None:
    expected = first.metadata.get("split.tensors.count")
    total = len(first.tensors) + sum(len(header.tensors) for _, _, header in parts)
    if expected is not None and expected != total:
        raise CheckpointError(
            f"{path}: metadata key 'split.tensors.count': promises {expected} tensors, the parts hold {total}"
        )
