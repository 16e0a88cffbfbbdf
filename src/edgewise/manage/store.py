"""The model store: lists what was pulled, what was begun and what the catalog offers; removes models with their engines.

Entries are folders of `models/` (see checkpoints/pull.py); built engines lie in `engines/` (see build/cache.py).
"""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgewise.build.cache import cache_entries, remove_entry
from edgewise.build.engine_dir import HEADER
from edgewise.build.staging import remove_leftovers
from edgewise.checkpoints.catalog import catalog
from edgewise.checkpoints.files import exclusive_lock, folder_bytes
from edgewise.checkpoints.settings import StoreSettings
from edgewise.checkpoints.stored import LOCKS, PARTIAL, RECORD, Wanted, stored_file, wanted_model
from edgewise.core.errors import ModelNotFoundError

State = Literal["ready", "damaged", "partial", "available"]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model of the store or the catalog. `num_bytes`: on the disk (of the published file for "available")."""

    name: str  # what to type
    state: State
    num_bytes: int
    engine_bytes: int = 0  # of its built engine directories
    path: Path | None = None
    summary: str = ""
    licence: str = ""


@dataclass(frozen=True, slots=True)
class Removed:
    """What `remove_model` removed."""

    name: str
    num_bytes: int
    num_engines: int


def list_models(settings: StoreSettings, *, with_catalog: bool = True) -> list[StoredModel]:
    """Models on this machine by name, then those the catalog could fetch."""
    engines = _engines_by_folder(settings)
    names = {folder.name: _name(folder) for folder in _folders(settings.models_dir)}
    here = [_here(settings, entry, name, engines) for entry, name in names.items()]
    here += [
        StoredModel(folder.name, "partial", folder_bytes(folder))
        for folder in _folders(settings.models_dir / PARTIAL)
        if folder.name not in names
    ]
    known = {model.name for model in here}
    offers = [
        StoredModel(model.name, "available", model.bytes, summary=model.summary, licence=model.licence)
        for model in catalog().values()
        if with_catalog and model.name not in known
    ]
    return sorted(here, key=lambda model: model.name) + offers


def remove_model(name: str, settings: StoreSettings) -> Removed:
    """Remove a pulled or half-pulled model, and every engine directory built from it.

    Raises ModelNotFoundError when there is nothing of that name.
    """
    wanted = wanted_model(name) or Wanted(name, ())
    with exclusive_lock(settings.models_dir / LOCKS / f"{wanted.entry}.lock"):
        folder, partial = settings.models_dir / wanted.entry, settings.models_dir / PARTIAL / wanted.entry
        if not folder.is_dir() and not partial.is_dir():
            raise ModelNotFoundError(f"{name!r} is not in the store", hint="`edgewise list` shows what is")
        engines = _engines_by_folder(settings).get(folder.resolve(), [])
        num_bytes = sum(folder_bytes(path) for path in (folder, partial, *engines))
        for path in (folder, partial):
            _remove_folder(path, settings)
        removed = [engine for engine in engines if remove_entry(engine)]
        remove_leftovers(settings.engines_dir)
    return Removed(wanted.name, num_bytes, len(removed))


def _folders(path: Path) -> list[Path]:
    """Visible folders of a folder that may not exist."""
    if not path.is_dir():
        return []
    return sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))


def _here(settings: StoreSettings, entry: str, name: str, engines: dict[Path, list[Path]]) -> StoredModel:
    folder = settings.models_dir / entry
    file = stored_file(folder)
    known = catalog().get(name)
    return StoredModel(
        name,
        "ready" if file else "damaged",
        folder_bytes(folder),
        engine_bytes=sum(folder_bytes(engine) for engine in engines.get(folder.resolve(), [])),
        path=file or folder,
        summary=known.summary if known else "",
        licence=known.licence if known else "",
    )


def _name(folder: Path) -> str:
    return str(_read_json(folder / RECORD).get("name", folder.name))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _engines_by_folder(settings: StoreSettings) -> dict[Path, list[Path]]:
    """Cached engine directories by the folder their checkpoint lies in."""
    found: dict[Path, list[Path]] = {}
    for engine in cache_entries(settings):
        source = _read_json(engine / HEADER).get("provenance", {}).get("path")
        if source:
            found.setdefault(Path(source).parent, []).append(engine)
    return found


def _remove_folder(path: Path, settings: StoreSettings) -> None:
    """Gone in one step for readers; the bytes follow."""
    if path.is_dir():
        doomed = settings.models_dir / PARTIAL / f".removed-{uuid.uuid4().hex[:8]}"
        doomed.parent.mkdir(parents=True, exist_ok=True)
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
