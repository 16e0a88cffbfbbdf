"""Turns a checkpoint into an engine directory, and one engine directory into another layout."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgewise import __version__
from edgewise.architectures import ModelMap, describe
from edgewise.build.convert import measure, native_format
from edgewise.build.engine_dir import (
    FORMAT_NAME,
    FORMAT_VERSION,
    GENERATION,
    HEADER,
    TEMPLATE,
    WEIGHTS,
    EngineDir,
    PackedTensor,
    load_engine_dir,
    seal,
    tensor_json,
    verify_weights,
)
from edgewise.build.generation import generation_config, tokenizer_kind
from edgewise.build.packing import LAYOUTS, BuildTools, Packer, default_tools
from edgewise.build.plan import plan_checkpoint, plan_repack
from edgewise.build.spec_json import spec_to_json
from edgewise.build.staging import building_lock, staged
from edgewise.build.verified import remember_verified
from edgewise.build.weights_file import PlannedTensor, WeightsFile
from edgewise.checkpoints import Checkpoint, open_checkpoint
from edgewise.checkpoints.files import free_bytes
from edgewise.checkpoints.gguf_types import BY_NAME
from edgewise.checkpoints.progress import Progress, ProgressCallback, silent
from edgewise.core.errors import ConfigError, EngineDirError

Bytes = npt.NDArray[np.uint8]

SPARE_BYTES = 64 << 20  # tokenizer, header and the file system's own needs
HASH_CHUNK = 4 << 20
TEMPLATE_NAME = re.compile(r"tokenizer\.chat_template\.([A-Za-z0-9_-]+)")


def build_engine_dir(
    checkpoint_path: Path,
    out: Path,
    *,
    layout: int,
    progress: ProgressCallback = silent,
    tools: BuildTools | None = None,
) -> EngineDir:
    """Build `out` from a checkpoint, replacing an engine directory already there; nothing appears before all is done.

    Raises CheckpointError, UnsupportedModelError or TokenizerError for the checkpoint, EngineDirError for the target.
    """
    with building_lock(_checked_target(out, layout)):
        return build_locked(checkpoint_path, out, layout=layout, progress=progress, tools=tools)


def build_locked(
    checkpoint_path: Path,
    out: Path,
    *,
    layout: int,
    progress: ProgressCallback = silent,
    tools: BuildTools | None = None,
) -> EngineDir:
    """`build_engine_dir` for a caller that holds the target's lock."""
    tools = tools or default_tools()
    checkpoint = open_checkpoint(checkpoint_path)
    model = describe(checkpoint)
    plan = list(plan_checkpoint(checkpoint, model, layout, tools.packer))
    _check_room(out, sum(file.stat().st_size for file in checkpoint.files) + SPARE_BYTES)
    with ThreadPoolExecutor(1, thread_name_prefix="edgewise-hash") as pool, staged(out) as folder:
        digest = pool.submit(_sha256, checkpoint.files)
        tensors = _write_weights(folder, plan, progress, _num_threads())
        _write_texts(folder, checkpoint, tools)
        header = {
            "layout": layout,
            "spec": spec_to_json(model.spec),
            "conversions": _conversions(checkpoint, model),
            "provenance": _provenance(checkpoint, digest),
        }
        _finish(folder, header, tensors, progress)
    checkpoint.close()
    return load_engine_dir(out)


def repack_locked(
    source: EngineDir,
    out: Path,
    *,
    layout: int,
    progress: ProgressCallback = silent,
    packer: Packer | None = None,
) -> EngineDir:
    """Write the same model for another layout. The caller holds the target's lock."""
    packer = packer or default_tools().packer
    plan = [plan_repack(tensor, source, layout, packer) for tensor in source.tensors.values()]
    _check_room(out, len(source.weights) + SPARE_BYTES)
    with staged(out) as folder:
        tensors = _write_weights(folder, plan, progress, _num_threads())
        old = json.loads((source.path / HEADER).read_bytes())
        for name in old["files"]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source.path / name, folder / name)
        kept = {key: old[key] for key in ("spec", "conversions", "provenance")}
        _finish(folder, {"layout": layout, **kept}, tensors, progress)
    return load_engine_dir(out)


def _checked_target(out: Path, layout: int) -> Path:
    if layout not in LAYOUTS:
        raise ConfigError(f"layout must be one of {LAYOUTS}, got {layout}")
    if out.exists() and not (out / HEADER).is_file() and not (out.is_dir() and not any(out.iterdir())):
        raise EngineDirError(f"{out}: exists and is not an engine directory", hint="choose another place")
    return out


def _check_room(out: Path, needed: int) -> None:
    free = free_bytes(out)
    if free < needed:
        raise EngineDirError(f"{out}: needs {needed} bytes, but only {free} are free on that disk")


def _num_threads() -> int:
    return min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def _write_weights(
    folder: Path, plan: list[PlannedTensor], progress: ProgressCallback, num_threads: int
) -> list[PackedTensor]:
    total = sum(BY_NAME[tensor.format].row_bytes(tensor.cols) * tensor.rows for tensor in plan)
    tensors = []
    with WeightsFile(folder / WEIGHTS, num_threads=num_threads) as file:
        for tensor in file.write_all(plan):
            tensors.append(tensor)
            progress(Progress("build", min(total, tensor.offset + tensor.nbytes), total, tensor.name))
    return tensors


def _write_texts(folder: Path, checkpoint: Checkpoint, tools: BuildTools) -> None:
    """Tokenizer, template and generation defaults."""
    ends = tools.save_tokenizer(checkpoint.metadata, folder)
    config = generation_config(checkpoint.metadata, ends)
    (folder / GENERATION).write_text(json.dumps(config, indent=1), encoding="utf-8")
    for key, value in checkpoint.metadata.items():
        if not isinstance(value, str):
            continue
        if key == "tokenizer.chat_template":
            (folder / TEMPLATE).write_text(value, encoding="utf-8")
        elif match := TEMPLATE_NAME.fullmatch(key):
            extra = folder / "additional_chat_templates" / f"{match[1]}.jinja"
            extra.parent.mkdir(exist_ok=True)
            extra.write_text(value, encoding="utf-8")


def _conversions(checkpoint: Checkpoint, model: ModelMap) -> dict[str, Any]:
    """Which tensors changed their format, and the error that costs."""
    out = {}
    for name, source in model.tensors.items():
        info = checkpoint.tensors[source.name]
        target = native_format(info.dtype)
        if len(info.shape) > 1 and target != info.dtype:
            error = measure(checkpoint.raw(source.name), info.dtype)
            out[name] = {"from": info.dtype, "to": target, **error}
    return out


def _sha256(files: tuple[Path, ...]) -> list[str]:
    digests = []
    for path in files:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return digests


def _provenance(checkpoint: Checkpoint, digests: Future[list[str]]) -> dict[str, Any]:
    files: list[dict[str, Any]] = [
        {"name": file.name, "bytes": file.stat().st_size, "sha256": digest}
        for file, digest in zip(checkpoint.files, digests.result(), strict=True)
    ]
    return {
        "path": str(checkpoint.path.resolve()),
        "name": str(checkpoint.metadata.get("general.name", checkpoint.path.stem)),
        "tokenizer": tokenizer_kind(checkpoint.metadata),
        "bytes": sum(file["bytes"] for file in files),
        "files": files,
    }


def _finish(
    folder: Path, header: dict[str, Any], tensors: list[PackedTensor], progress: ProgressCallback
) -> None:
    """Write engine.json over what lies in the folder, then read everything back once before it is published."""
    weights_bytes = (folder / WEIGHTS).stat().st_size
    hashes = [file["sha256"] for file in header["provenance"]["files"]]
    identity = json.dumps([FORMAT_VERSION, hashes, header["spec"]], sort_keys=True)
    full = {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "edgewise_version": __version__,
        **header,
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest(),
        "files": _file_checksums(folder),
        "weights_bytes": weights_bytes,
        "tensors": [tensor_json(tensor) for tensor in tensors],
    }
    (folder / HEADER).write_bytes(seal(full))
    verify_weights(load_engine_dir(folder), progress)
    remember_verified(folder)  # renaming the folder leaves the file what it is


def _file_checksums(folder: Path) -> dict[str, dict[str, int]]:
    out = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in (HEADER, WEIGHTS):
            data = path.read_bytes()
            out[str(path.relative_to(folder))] = {"bytes": len(data), "crc32": zlib.crc32(data)}
    return out
