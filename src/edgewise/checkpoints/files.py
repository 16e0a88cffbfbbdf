"""Files that a crash cannot leave half-written where someone would trust them: locks, durable writes, free space.

Locks are flock(2): the kernel drops them with the process, so a SIGKILL never leaves one behind.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive_lock(path: Path, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path`; calls `waiting` if another process or thread holds it. The file exists while it is held.

    The holder removes the file before letting go, so whoever waited for it may get the lock of a file that is gone, and tries again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(descriptor, waiting)
            if not _still_there(descriptor, path):
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return
        finally:
            os.close(descriptor)


def _lock(descriptor: int, waiting: Callable[[], None] | None) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if waiting:
            waiting()
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _still_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def fsync_dir(path: Path) -> None:
    """Make a folder's entries (renames, new files) survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(path: Path) -> None:
    """Flush every file and folder below `path`, and itself, to the disk."""
    for root, _, names in os.walk(path, topdown=False):
        for name in names:
            with (Path(root) / name).open("rb") as file:
                os.fsync(file.fileno())
        fsync_dir(Path(root))


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file's content in one step: readers see the old bytes or the new ones, also after a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    fsync_dir(path.parent)


def free_bytes(path: Path) -> int:
    """Bytes an unprivileged process can still write below `path` (or its nearest existing parent)."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def folder_bytes(path: Path) -> int:
    """Sum of the sizes of the files below `path`; files that vanish meanwhile count nothing."""
    total = 0
    for root, _, names in os.walk(path):
        for name in names:
            try:
                total += (Path(root) / name).lstat().st_size
            except OSError:
                continue
    return total
