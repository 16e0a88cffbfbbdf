"""Publishing a folder in one step: it is written under a hidden name beside its place, flushed, and renamed.

A process that dies leaves only a hidden folder, which the next one to hold the lock removes.
"""

from __future__ import annotations

import errno
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgewise.checkpoints.files import exclusive_lock, fsync_dir, fsync_tree
from edgewise.core.errors import EngineDirError

STAGING_SUFFIX = ".building"
OLD_SUFFIX = ".old"
LEFTOVER = re.compile(r"\.(?P<target>.+)\.[0-9a-f]+\.(building|old)")


def lock_path(target: Path) -> Path:
    """The lock file that guards a folder's place."""
    return target.with_name(f".{target.name}.lock")


@contextmanager
def building_lock(target: Path, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the right to build `target`; what dead builders left is removed first.

    Raises EngineDirError for what the file system refuses meanwhile: no permission, no room.
    """
    with disk_errors(target), exclusive_lock(lock_path(target), waiting=waiting):
        for leftover in target.parent.glob(f".{target.name}.*"):
            if leftover.name.endswith((STAGING_SUFFIX, OLD_SUFFIX)):
                shutil.rmtree(leftover, ignore_errors=True)
        yield


class _BusyError(Exception):
    """Somebody holds the lock."""


def _refuse_to_wait() -> None:
    raise _BusyError


def remove_leftovers(folder: Path) -> None:
    """Remove what dead builders left of any target in `folder`; what is being built at the moment stays."""
    for leftover in folder.glob(".*"):
        if match := LEFTOVER.fullmatch(leftover.name):
            lock = lock_path(folder / match["target"])
            with suppress(_BusyError, OSError), exclusive_lock(lock, waiting=_refuse_to_wait):
                shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """Turn OSErrors of writing `target` into EngineDirError."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise EngineDirError(
            f"{target}: cannot be written: {error.strerror or error}",
            hint="free some space and run the same command again; nothing half-built is left"
            if full
            else None,
        ) from error


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A new folder that becomes `target` (replacing it) when the block ends, and vanishes when it raises.

    All of it is on the disk before the rename. The caller holds `building_lock(target)`.
    """
    unique = uuid.uuid4().hex[:8]
    staging = target.with_name(f".{target.name}.{unique}{STAGING_SUFFIX}")
    staging.mkdir(parents=True)
    try:
        yield staging
        fsync_tree(staging)
        _publish(staging, target, target.with_name(f".{target.name}.{unique}{OLD_SUFFIX}"))
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _publish(staging: Path, target: Path, old: Path) -> None:
    """Rename into place. A folder cannot be renamed over a full one, so an old version steps aside first."""
    if target.exists():
        target.rename(old)
    staging.rename(target)
    fsync_dir(target.parent)
    shutil.rmtree(old, ignore_errors=True)
