"""Opens a checkpoint from a local path: a GGUF file, the first part of a split one, or a folder that holds one."""

from __future__ import annotations

from pathlib import Path

from edgewise.checkpoints.checkpoint import Checkpoint
from edgewise.checkpoints.gguf import SPLIT_NAME, open_gguf
from edgewise.core.errors import CheckpointError, ModelNotFoundError, UnsupportedModelError


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a checkpoint.

    Raises ModelNotFoundError when nothing is there, CheckpointError naming file and field for a damaged one, and
    UnsupportedModelError for other kinds of checkpoint.
    """
    return open_gguf(checkpoint_file(path))


def checkpoint_file(path: Path) -> Path:
    """The file to open for a path a person gave: the file itself, or the one model of a folder."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise ModelNotFoundError(f"{path}: no such file or folder")
    models = [file for file in sorted(path.glob("*.gguf")) if _starts_model(file)]
    if len(models) == 1:
        return models[0]
    if models:
        names = ", ".join(file.name for file in models)
        raise CheckpointError(f"{path}: holds several models: {names}", hint="name the one to use")
    if (path / "config.json").is_file():
        raise UnsupportedModelError(f"{path}: a safetensors checkpoint; only GGUF files can be read so far")
    raise ModelNotFoundError(f"{path}: holds no .gguf file")


def _starts_model(file: Path) -> bool:
    match = SPLIT_NAME.match(file.name)
    return not file.name.startswith("mmproj") and (match is None or int(match["number"]) == 1)
