"""An engine's log: the process writes into the file itself, so that it goes on when the gateway does not.

The file is opened for appending. Once it is larger than its limit it is copied to NAME.log.1 and emptied in place; what is written between
those two steps is lost, a few lines in many megabytes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

LIMIT_BYTES = 16 << 20
_TAIL_BYTES = 16 << 10
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


class EngineLog:
    """The log file of one engine."""

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self.path = path
        self._limit_bytes = limit_bytes
        self._begun_at = 0

    @contextlib.contextmanager
    def opened(self, heading: str) -> Iterator[int]:
        """A file descriptor for a new process, below a line that says what begins here. Readable by the owner alone."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.rotate()
        handle = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        try:
            self._begun_at = os.fstat(handle).st_size
            moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            os.write(handle, f"--- {moment} {heading}\n".encode("utf-8", "replace"))
            yield handle
        finally:
            os.close(handle)

    def rotate(self) -> None:
        """Empty the file if it is too large, keeping one older file."""
        with contextlib.suppress(FileNotFoundError):
            if self.path.stat().st_size <= self._limit_bytes:
                return
            older = self.path.with_name(self.path.name + ".1")
            shutil.copy2(self.path, older)
            os.truncate(self.path, 0)
            self._begun_at = 0

    def last_lines(self, num_lines: int = 12) -> list[str]:
        """What the latest process wrote last, without control characters."""
        return clean_lines(tail(self.path, since=self._begun_at))[1:][-num_lines:]


def tail(path: Path, *, since: int = 0, max_bytes: int = _TAIL_BYTES) -> bytes:
    """The end of a file, empty where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since if since <= size else 0, size - max_bytes))
            return file.read()
    except FileNotFoundError:
        return b""


def clean_lines(data: bytes) -> list[str]:
    return [
        line
        for text in data.decode("utf-8", "replace").splitlines()
        if (line := _CONTROL.sub("", text).rstrip())
    ]
