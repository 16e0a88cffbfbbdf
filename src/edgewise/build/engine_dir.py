"""Engine directories: a built model that the engine maps. This module owns their format and opens them.

    engine.json             everything about the model and the bytes, with a checksum over itself
    weights.bin             tensors one after the other, each at a multiple of 64 bytes, packed for one layout
    tokenizer files         as the text room saves them
    chat_template.jinja     the model's template, where it has one
    generation_config.json  sampling defaults and the ids that end a generation

Opening checks engine.json and the small files wholly, sizes and places of all tensors, and a sample of the weights' bytes;
`verify_weights` reads them all. Nothing of a directory that fails a check is used.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from edgewise.build.packing import LAYOUTS, PLAIN
from edgewise.build.spec_json import spec_from_json
from edgewise.checkpoints.progress import Progress, ProgressCallback, silent
from edgewise.core.errors import EngineDirError
from edgewise.core.spec import DecoderSpec

FORMAT_NAME = "edgewise-engine"
FORMAT_VERSION = 1
HEADER, WEIGHTS = "engine.json", "weights.bin"
TEMPLATE, GENERATION = "chat_template.jinja", "generation_config.json"
ALIGNMENT = 64
PROBE_BYTES = 4096  # checked at the start of a sampled tensor
PROBE_TENSORS = 32
CRC_CHUNK = 8 << 20


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """A tensor in weights.bin. `layout` rows are interleaved; 0: plain row-major f32. `probe` is the CRC of its first bytes."""

    name: str  # canonical, see core/spec.py
    format: str
    layout: int
    rows: int
    cols: int
    offset: int
    nbytes: int
    crc32: int
    probe: int


@dataclass(frozen=True, slots=True)
class EngineDir:
    """An opened engine directory. Read-only; `weights` maps weights.bin, which may be deleted meanwhile (on Linux)."""

    path: Path
    spec: DecoderSpec
    layout: int
    tensors: Mapping[str, PackedTensor]
    weights: npt.NDArray[np.uint8]
    chat_template: str | None
    generation_config: dict[str, Any]
    provenance: dict[str, Any]
    conversions: dict[
        str, Any
    ]  # tensors stored in another format than the checkpoint's, with the error that costs
    fingerprint: str  # equal for directories that compute the same, whatever their layout
    file_bytes: int  # of the checkpoint: what a plain engine would read per token


def seal(header: dict[str, Any]) -> bytes:
    """The bytes of engine.json: the header with a checksum over its canonical form."""
    body = {key: value for key, value in header.items() if key != "checksum"}
    body["checksum"] = _checksum(body)
    return json.dumps(body, indent=1, ensure_ascii=False).encode()


def _checksum(body: dict[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def crc32(data: npt.NDArray[np.uint8]) -> int:
    """CRC-32 of a contiguous array."""
    return zlib.crc32(data.data)


def tensor_json(tensor: PackedTensor) -> dict[str, Any]:
    """One tensor's entry of engine.json."""
    return asdict(tensor)


def is_engine_dir(path: Path) -> bool:
    """Whether a path looks like an engine directory (it may still be refused)."""
    return (path / HEADER).is_file()


def load_engine_dir(path: Path) -> EngineDir:
    """Open an engine directory in the layout it was built for.

    Raises EngineDirError saying what is wrong with a corrupt, truncated, foreign or newer one.
    """
    reader = _Reader(path)
    header = reader.header()
    try:
        engine_dir = _read(reader, header)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # The header is well sealed, and yet not one of ours.
        reader.fail(f"{HEADER} does not describe an engine: {error!r}")
    _probe(engine_dir)
    return engine_dir


def _read(reader: _Reader, header: dict[str, Any]) -> EngineDir:
    if header["layout"] not in LAYOUTS:
        reader.fail(f"unknown layout {header['layout']}")
    if not isinstance(header["fingerprint"], str):
        reader.fail(f"{HEADER} has no fingerprint")
    reader.check_files(header)
    tensors = reader.tensors(header)
    weights = reader.map_weights(header["weights_bytes"])
    return EngineDir(
        path=reader.path,
        spec=reader.spec(header),
        layout=header["layout"],
        tensors=MappingProxyType(tensors),
        weights=weights,
        chat_template=reader.text(TEMPLATE, header),
        generation_config=json.loads(reader.text(GENERATION, header) or "{}"),
        provenance=header["provenance"],
        conversions=header["conversions"],
        fingerprint=header["fingerprint"],
        file_bytes=int(header["provenance"]["bytes"]),
    )


class _Reader:
    """Reads one directory; every problem becomes an EngineDirError that names it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, problem: str, *, hint: str | None = None) -> NoReturn:
        raise EngineDirError(
            f"{self.path}: {problem}", hint=hint or "build it again with `edgewise build MODEL -o DIR`"
        )

    def header(self) -> dict[str, Any]:
        try:
            header = json.loads((self.path / HEADER).read_bytes())
        except FileNotFoundError:
            self.fail(f"not an engine directory: it has no {HEADER}")
        except (OSError, ValueError) as error:
            self.fail(f"{HEADER} cannot be read: {error}")
        if not isinstance(header, dict) or header.get("format") != FORMAT_NAME:
            self.fail(
                f"{HEADER} was not written by Edgewise", hint="name a directory made by `edgewise build`"
            )
        version = header.get("version")
        if version != FORMAT_VERSION:
            maker = header.get("edgewise_version", "another version")
            age = "newer than" if isinstance(version, int) and version > FORMAT_VERSION else "not"
            self.fail(
                f"format version {version}, made by Edgewise {maker}, is {age} the version {FORMAT_VERSION} read here"
            )
        checksum = header.pop("checksum", None)
        if checksum != _checksum(header):
            self.fail(f"{HEADER} is damaged: its checksum does not match")
        return header

    def spec(self, header: dict[str, Any]) -> DecoderSpec:
        try:
            return spec_from_json(header["spec"])
        except ValueError as error:
            self.fail(f"{HEADER}: {error}")

    def check_files(self, header: dict[str, Any]) -> None:
        for name, expected in header["files"].items():
            try:
                data = (self.path / name).read_bytes()
            except OSError:
                self.fail(f"{name} is missing or cannot be read")
            if len(data) != expected["bytes"] or zlib.crc32(data) != expected["crc32"]:
                self.fail(f"{name} is damaged: its checksum does not match")

    def text(self, name: str, header: dict[str, Any]) -> str | None:
        return (self.path / name).read_text(encoding="utf-8") if name in header["files"] else None

    def tensors(self, header: dict[str, Any]) -> dict[str, PackedTensor]:
        tensors: dict[str, PackedTensor] = {}
        end = 0
        for entry in header["tensors"]:
            tensor = PackedTensor(**entry)
            if (
                tensor.layout not in (PLAIN, header["layout"])
                or tensor.offset % ALIGNMENT
                or tensor.offset < end
            ):
                self.fail(f"tensor {tensor.name!r} is misplaced")
            end = tensor.offset + tensor.nbytes
            tensors[tensor.name] = tensor
        if end > header["weights_bytes"]:
            self.fail(f"{WEIGHTS} is too short for the tensors of {HEADER}")
        return tensors

    def map_weights(self, expected_bytes: int) -> npt.NDArray[np.uint8]:
        try:
            with (self.path / WEIGHTS).open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            self.fail(f"{WEIGHTS} is missing or cannot be mapped: {error}")
        if len(data) != expected_bytes:
            self.fail(f"{WEIGHTS} has {len(data)} bytes, not {expected_bytes} (truncated?)")
        return np.frombuffer(data, dtype=np.uint8)


def _damaged(engine_dir: EngineDir, tensor: PackedTensor) -> EngineDirError:
    return EngineDirError(
        f"{engine_dir.path}: tensor {tensor.name!r} in {WEIGHTS} is damaged: its checksum does not match",
        hint="build it again with `edgewise build MODEL -o DIR`",
    )


def _probe(engine_dir: EngineDir) -> None:
    """Check the first bytes of some tensors, spread over the file: finds holes and swapped files for a few page reads."""
    tensors = list(engine_dir.tensors.values())
    for tensor in tensors[:: max(1, len(tensors) // PROBE_TENSORS)]:
        start = engine_dir.weights[tensor.offset : tensor.offset + min(PROBE_BYTES, tensor.nbytes)]
        if crc32(start) != tensor.probe:
            raise _damaged(engine_dir, tensor)


def verify_weights(engine_dir: EngineDir, progress: ProgressCallback = silent) -> None:
    """Read every byte of the weights against its checksum. Raises EngineDirError naming the first damaged tensor."""
    done = 0
    for tensor in engine_dir.tensors.values():
        code = 0
        for chunk in _chunks(engine_dir.weights[tensor.offset : tensor.offset + tensor.nbytes]):
            code = zlib.crc32(chunk, code)
            done += len(chunk)
        if code != tensor.crc32:
            raise _damaged(engine_dir, tensor)
        progress(Progress("check", done, len(engine_dir.weights), tensor.name))


def _chunks(data: npt.NDArray[np.uint8]) -> Iterable[memoryview]:
    view = data.data
    for start in range(0, len(view), CRC_CHUNK):
        yield view[start : start + CRC_CHUNK]
