"""Reads and checks the header of one GGUF file (version 2 or 3, little-endian).

Nothing in a header is believed before it is checked against the file's size, so a damaged or hostile file costs neither memory
nor time: counts are bounded by what could fit, lengths by what is left, tensors by the end of the data.
Source: the GGUF specification of the ggml project.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from edgewise.checkpoints.checkpoint import TensorInfo
from edgewise.checkpoints.gguf_types import TYPES
from edgewise.core.errors import CheckpointError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ARRAY_LEN = 1 << 24  # forty times the largest published vocabulary
MAX_NAME_LEN = 1 << 16
MAX_DIMS = 4
MIN_KV_BYTES = 8 + 4 + 1  # empty key, type, smallest value
MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8  # empty name, one dimension

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: dict[int, struct.Struct] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<B"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32, _U64 = _SCALARS[4], _SCALARS[10]


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """A checked header. `offsets` are absolute positions in the file."""

    version: int
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    offsets: dict[str, int]
    file_bytes: int


class _Cursor:
    """A bounds-checked reader over the mapped file. `field` names what is being read, for errors."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.at = 0
        self.field = "magic"

    def fail(self, problem: str) -> NoReturn:
        raise CheckpointError(f"{self.path}: {self.field}: {problem}")

    def need(self, num_bytes: int) -> None:
        if num_bytes > self.size - self.at:
            self.fail(
                f"needs {num_bytes} bytes but the file ends {self.size - self.at} bytes later (truncated?)"
            )

    def scalar(self, code: struct.Struct) -> Any:
        self.need(code.size)
        (value,) = code.unpack_from(self.data, self.at)
        self.at += code.size
        return value

    def count(self, what: str, min_bytes: int, limit: int | None = None) -> int:
        """A u64 count of things of at least `min_bytes` each, refused when they could not fit the rest of the file."""
        n: int = self.scalar(_U64)
        if n * min_bytes > self.size - self.at or (limit is not None and n > limit):
            self.fail(f"{n} {what} cannot be right in a file of {self.size} bytes")
        return n

    def string(self) -> str:
        """A value. Bytes that are not UTF-8 become U+FFFD: a description with a stray byte is no reason to refuse a model."""
        length = self.count("characters", 1)
        self.at += length
        return self.data[self.at - length : self.at].decode("utf-8", errors="replace")

    def name(self) -> str:
        """The name of a key or tensor."""
        length = self.count("characters", 1, MAX_NAME_LEN)
        self.at += length
        try:
            return self.data[self.at - length : self.at].decode("utf-8")
        except UnicodeDecodeError:
            self.fail("the name is not valid UTF-8")

    def strings(self, n: int) -> list[str]:
        """`n` strings. The loop is kept lean: a vocabulary has several hundred thousand."""
        data, at, size, unpack, out = self.data, self.at, self.size, _U64.unpack_from, []
        for _ in range(n):
            if at + 8 > size:
                self.fail("a string starts beyond the end of the file")
            (length,) = unpack(data, at)
            at += 8
            if length > size - at:
                self.fail(f"a string of {length} bytes runs beyond the end of the file")
            out.append(data[at : at + length].decode("utf-8", errors="replace"))
            at += length
        self.at = at
        return out

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array()
        code = _SCALARS.get(kind)
        if code is None:
            self.fail(f"unknown value type {kind}")
        value = self.scalar(code)
        return bool(value) if kind == _BOOL else value

    def array(self) -> list[Any]:
        kind: int = self.scalar(_U32)
        if kind == _STRING:
            return self.strings(self.count("strings", 8, MAX_ARRAY_LEN))
        code = _SCALARS.get(kind)
        if code is None:
            self.fail("nested arrays are not supported" if kind == _ARRAY else f"unknown array type {kind}")
        n = self.count("values", code.size, MAX_ARRAY_LEN)
        values = np.frombuffer(self.data, dtype=code.format, count=n, offset=self.at) if n else np.zeros(0)
        self.at += n * code.size
        return [bool(v) for v in values] if kind == _BOOL else values.tolist()


def read_header(path: Path, data: mmap.mmap) -> GgufHeader:
    """Read the header of a mapped GGUF file.

    Raises CheckpointError naming the file and the field at fault.
    """
    cursor = _Cursor(path, data)
    version = _read_version(cursor)
    cursor.field = "tensor count"
    num_tensors = cursor.count("tensors", MIN_TENSOR_BYTES)
    cursor.field = "metadata count"
    num_keys = cursor.count("metadata keys", MIN_KV_BYTES)
    metadata = _read_metadata(cursor, num_keys)
    alignment = _alignment(cursor, metadata)
    tensors, relative = _read_tensors(cursor, num_tensors, alignment)
    data_start = -(-cursor.at // alignment) * alignment
    offsets = {name: data_start + offset for name, offset in relative.items()}
    _check_extents(cursor, tensors, offsets)
    return GgufHeader(version, metadata, tensors, offsets, cursor.size)


def _read_version(cursor: _Cursor) -> int:
    cursor.need(8)
    magic = cursor.data[:4]
    cursor.at = 4
    if magic == MAGIC[::-1]:
        cursor.fail("a big-endian GGUF file; only little-endian files can be read")
    if magic != MAGIC:
        cursor.fail(f"starts with {magic!r}, not with {MAGIC!r}: not a GGUF file")
    cursor.field = "version"
    version: int = cursor.scalar(_U32)
    if version and version & 0xFFFF == 0:
        cursor.fail(
            "the byte order is reversed: a big-endian GGUF file; only little-endian files can be read"
        )
    if version not in VERSIONS:
        cursor.fail(f"version {version} cannot be read; versions 2 and 3 can")
    return version


def _read_metadata(cursor: _Cursor, num_keys: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(num_keys):
        cursor.field = f"metadata key {index}"
        key = cursor.name()
        cursor.field = f"metadata key {key!r}"
        if key in metadata:
            cursor.fail("given twice")
        metadata[key] = cursor.value(cursor.scalar(_U32))
    return metadata


def _alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or value < 1
        or value > 1 << 20
        or value & (value - 1)
    ):
        cursor.field = "metadata key 'general.alignment'"
        cursor.fail(f"must be a power of two up to 1048576, got {value!r}")
    return value


def _read_tensors(
    cursor: _Cursor, num_tensors: int, alignment: int
) -> tuple[dict[str, TensorInfo], dict[str, int]]:
    tensors: dict[str, TensorInfo] = {}
    offsets: dict[str, int] = {}
    for index in range(num_tensors):
        cursor.field = f"tensor {index}"
        name = cursor.name()
        cursor.field = f"tensor {name!r}"
        if name in tensors:
            cursor.fail("given twice")
        tensors[name] = _read_tensor(cursor, name)
        offsets[name] = cursor.scalar(_U64)
        if offsets[name] % alignment:
            cursor.fail(f"offset {offsets[name]} is not a multiple of the alignment {alignment}")
    return tensors, offsets


def _read_tensor(cursor: _Cursor, name: str) -> TensorInfo:
    num_dims: int = cursor.scalar(_U32)
    if not 1 <= num_dims <= MAX_DIMS:
        cursor.fail(f"has {num_dims} dimensions; 1 to {MAX_DIMS} are possible")
    dims = [int(cursor.scalar(_U64)) for _ in range(num_dims)]
    type_id: int = cursor.scalar(_U32)
    kind = TYPES.get(type_id)
    if kind is None:
        cursor.fail(f"unknown tensor type {type_id}")
    if min(dims) < 1:
        cursor.fail(f"has an empty dimension: {dims}")
    if dims[0] % kind.block_size:
        cursor.fail(f"rows of {dims[0]} values do not divide into {kind.name} blocks of {kind.block_size}")
    nbytes = kind.row_bytes(dims[0])
    for dim in dims[1:]:
        nbytes *= dim
    return TensorInfo(name, tuple(reversed(dims)), kind.name, nbytes)


def _check_extents(cursor: _Cursor, tensors: dict[str, TensorInfo], offsets: dict[str, int]) -> None:
    """Every tensor must end inside the file and overlap no other."""
    order = sorted(tensors, key=offsets.__getitem__)
    for name in order:
        end = offsets[name] + tensors[name].nbytes
        if end > cursor.size:
            cursor.field = f"tensor {name!r}"
            cursor.fail(f"ends at byte {end}, beyond the end of the file at {cursor.size} (truncated?)")
    for before, after in pairwise(order):
        if offsets[before] + tensors[before].nbytes > offsets[after]:
            cursor.field = f"tensor {after!r}"
            cursor.fail(f"overlaps tensor {before!r}")
