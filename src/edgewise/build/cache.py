"""The cache of built engine directories: one per checkpoint and layout, least recently used ones removed beyond a size limit.

An entry is trusted only after the checks of `load_engine_dir`; a damaged one is built again. Two processes that want the same
entry share one build: the second waits for the lock and finds it done. Removing an entry does not disturb a process that maps it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from edgewise.build.build import build_locked, repack_locked
from edgewise.build.engine_dir import FORMAT_VERSION, HEADER, EngineDir, is_engine_dir, load_engine_dir
from edgewise.build.packing import BuildTools
from edgewise.build.staging import building_lock, remove_leftovers
from edgewise.build.verified import verify_once
from edgewise.checkpoints.files import folder_bytes, free_bytes
from edgewise.checkpoints.gguf import split_files
from edgewise.checkpoints.open import checkpoint_file
from edgewise.checkpoints.progress import Progress, ProgressCallback, silent
from edgewise.checkpoints.settings import StoreSettings
from edgewise.checkpoints.source import resolve_source
from edgewise.core.errors import EngineDirError

log = logging.getLogger(__name__)

DEFAULT_LIMIT_BYTES = 50 * 10**9
FREE_SHARE = 0.8
HEAD_BYTES = 1 << 20  # of each checkpoint file, hashed into the key
ENTRY_NAME = re.compile(r".+-[0-9a-f]{16}-r\d+-v\d+")


def engine_dir_for(
    model: str,
    *,
    layout: int,
    progress: ProgressCallback = silent,
    settings: StoreSettings | None = None,
    tools: BuildTools | None = None,
) -> EngineDir:
    """The engine directory of a model, whatever a person calls it: fetched, built and cached as needed.

    `model` is a catalog name, a hub id, a checkpoint file or folder, or an engine directory.
    Raises ModelError and its kinds, DownloadError.
    """
    settings = settings or StoreSettings()
    path = Path(model).expanduser()
    if is_engine_dir(path):
        return open_engine_dir(path, layout=layout, progress=progress, settings=settings, tools=tools)
    checkpoint = checkpoint_file(resolve_source(model, settings=settings, progress=progress))
    key = checkpoint_key(checkpoint)

    def build(target: Path) -> EngineDir:
        return build_locked(checkpoint, target, layout=layout, progress=progress, tools=tools)

    return _cached(_entry(settings, checkpoint.stem, key, layout), settings, progress, build)


def open_engine_dir(
    path: Path,
    *,
    layout: int,
    progress: ProgressCallback = silent,
    settings: StoreSettings | None = None,
    tools: BuildTools | None = None,
) -> EngineDir:
    """Open an engine directory for a layout; one built for another is repacked into the cache first.

    Raises EngineDirError for a corrupt, truncated, foreign or newer directory.
    """
    engine_dir = verify_once(load_engine_dir(path), progress)
    if engine_dir.layout == layout:
        return engine_dir
    settings = settings or StoreSettings()

    def repack(target: Path) -> EngineDir:
        log.info("%s is packed for layout %d; repacking it for %d", path, engine_dir.layout, layout)
        packer = tools.packer if tools else None
        return repack_locked(engine_dir, target, layout=layout, progress=progress, packer=packer)

    return _cached(_entry(settings, path.name, engine_dir.fingerprint, layout), settings, progress, repack)


def checkpoint_key(path: Path) -> str:
    """A fast identity of a checkpoint: place, size, time and first megabyte of each of its files."""
    digest = hashlib.sha256()
    for file in split_files(path):
        stat = file.stat()
        digest.update(f"{file.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
        with file.open("rb") as handle:
            digest.update(handle.read(HEAD_BYTES))
    return digest.hexdigest()


def _entry(settings: StoreSettings, name: str, key: str, layout: int) -> Path:
    return settings.engines_dir / f"{name}-{key[:16]}-r{layout}-v{FORMAT_VERSION}"


def _cached(
    entry: Path, settings: StoreSettings, progress: ProgressCallback, make: Callable[[Path], EngineDir]
) -> EngineDir:
    """The entry as it is when sound; otherwise made under its lock, then older entries are removed."""
    engine_dir = _sound(entry)
    if engine_dir is None:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with building_lock(entry, waiting=lambda: progress(Progress("wait", 0, 0, entry.name))):
            engine_dir = _sound(entry) or make(entry)
        remove_leftovers(settings.engines_dir)
        evict(settings, keep=entry)
    _touch(entry)
    return engine_dir


def _sound(entry: Path) -> EngineDir | None:
    if not entry.is_dir():
        return None
    try:
        return verify_once(load_engine_dir(entry))
    except EngineDirError as error:
        log.warning("%s; building it again", error.message)
        return None


def _touch(entry: Path) -> None:
    """Note the use; the time of engine.json is what eviction goes by."""
    try:
        os.utime(entry / HEADER)
    except OSError as error:
        log.debug("cannot note the use of %s: %s", entry, error)


def cache_limit(settings: StoreSettings) -> int:
    """Bytes the cache may take: as configured, else 50 GB or 80 % of what it could have of the disk."""
    if settings.engine_cache_bytes is not None:
        return settings.engine_cache_bytes
    available = free_bytes(settings.engines_dir) + folder_bytes(settings.engines_dir)
    return min(DEFAULT_LIMIT_BYTES, int(FREE_SHARE * available))


def evict(settings: StoreSettings, *, keep: Path) -> list[Path]:
    """Remove least recently used entries, never `keep`, until the rest fits the limit. Returns what was removed."""
    entries = sorted(cache_entries(settings), key=_last_used, reverse=True)
    room = cache_limit(settings) - folder_bytes(keep)
    removed = []
    for entry in entries:
        if entry == keep:
            continue
        room -= folder_bytes(entry)
        if room < 0 and remove_entry(entry):
            log.info("removed %s from the engine cache, unused the longest", entry.name)
            removed.append(entry)
    return removed


def cache_entries(settings: StoreSettings) -> list[Path]:
    """The engine directories of the cache. Its folder may be one that a person named, so nothing else in it is touched."""
    if not settings.engines_dir.is_dir():
        return []
    return [
        path
        for path in settings.engines_dir.iterdir()
        if ENTRY_NAME.fullmatch(path.name) and not path.name.startswith(".") and path.is_dir()
    ]


def remove_entry(entry: Path) -> bool:
    """Remove one entry. Whole or not at all to readers: it is renamed away first."""
    with building_lock(entry):
        if not entry.is_dir():
            return False
        doomed = entry.with_name(f".{entry.name}.{time.time_ns():x}.old")
        entry.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    return True


def _last_used(entry: Path) -> float:
    try:
        return (entry / HEADER).stat().st_mtime
    except OSError:
        return 0.0
