"""What `edgewise uninstall --purge` removes: everything Edgewise keeps of its own, and nothing else that lies in the same folders."""

from __future__ import annotations

import shutil
from pathlib import Path

from edgewise.build.cache import cache_entries, remove_entry
from edgewise.checkpoints.files import folder_bytes
from edgewise.checkpoints.settings import StoreSettings
from edgewise.manage.state import FILE

_FOLDERS = ("models", "engines", "logs", "profiles")
_FILES = (FILE, f"{FILE}-wal", f"{FILE}-shm", "latest.json", "gateway.sock", "gateway.lock")


def kept_bytes(settings: StoreSettings) -> int:
    """Size of models, built engines, logs and state."""
    elsewhere = [] if _built_inside(settings) else cache_entries(settings)
    files = [path for name in _FILES if (path := settings.data_dir / name).is_file()]
    return sum(map(folder_bytes, [*_folders(settings), *elsewhere])) + sum(
        file.stat().st_size for file in files
    )


def purge(settings: StoreSettings) -> None:
    """Remove them, and the data folder where it is then empty. Raises OSError for what cannot be removed."""
    if not _built_inside(settings):
        for entry in cache_entries(settings):
            remove_entry(entry)
    for folder in _folders(settings):
        shutil.rmtree(folder)
    for name in _FILES:
        (settings.data_dir / name).unlink(missing_ok=True)
    if settings.data_dir.is_dir() and not any(settings.data_dir.iterdir()):
        settings.data_dir.rmdir()


def _folders(settings: StoreSettings) -> list[Path]:
    return [path for name in _FOLDERS if (path := settings.data_dir / name).is_dir()]


def _built_inside(settings: StoreSettings) -> bool:
    return settings.engines_dir == settings.data_dir / "engines"
