"""What outlives a process: one SQLite file in the data folder, readable by its owner alone.

Writes are whole transactions in write-ahead mode with every commit synced, so a process killed at any moment leaves the last state that was
committed. Several processes may have it open; `changes` tells one that another wrote.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from edgewise.core.errors import ConfigError

FILE = "state.db"
_BUSY_S = 10.0  # a writer waits this long for another
_STEPS = (
    """
CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    created_s REAL NOT NULL,
    revoked_s REAL,
    max_concurrent INTEGER,
    requests_per_minute REAL,
    weight REAL NOT NULL,
    background INTEGER NOT NULL
) STRICT;
""",
    """
CREATE TABLE engines (
    name TEXT PRIMARY KEY,
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,
    model TEXT NOT NULL,
    port INTEGER NOT NULL UNIQUE,
    context INTEGER,
    users INTEGER NOT NULL,
    reasoning_parser TEXT NOT NULL,
    tool_parser TEXT NOT NULL,
    args TEXT NOT NULL,
    env TEXT NOT NULL,
    program TEXT,
    wanted INTEGER NOT NULL
) STRICT;
CREATE TABLE ran (
    name TEXT PRIMARY KEY,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    digest TEXT NOT NULL
) STRICT;
""",
)
"""What each version added to the one before it; a file is of version n once the first n were done."""

VERSION = len(_STEPS)


class State:
    """An open state file. Used by one thread at a time."""

    def __init__(self, data_dir: Path) -> None:
        """Makes the file where there is none. Raises ConfigError for one that cannot be used: damaged, of a newer version, not ours."""
        self.path = data_dir / FILE
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            _make_private(self.path)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be made: {error.strerror}") from error
        try:
            self._connection = sqlite3.connect(
                self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise ConfigError(f"{self.path} cannot be opened: {error}") from error
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._prepare()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise ConfigError(
                f"{self.path} cannot be used: {error}", hint="move it away to begin with an empty one"
            ) from error
        except ConfigError:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        with self.writing() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise ConfigError(f"{self.path} is of version {version}; this program knows up to {VERSION}")
            if version < VERSION:
                for statement in filter(str.strip, ";".join(_STEPS[version:]).split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it, or nothing."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def read(self, query: str, *values: object) -> list[tuple[object, ...]]:
        return self._connection.execute(query, values).fetchall()

    def changes(self) -> int:
        """A number that is another one after another connection has written. Microseconds."""
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(version)

    def close(self) -> None:
        self._connection.close()


def _make_private(path: Path) -> None:
    """What SQLite makes beside the file has its mode. A file that is there is not opened: closing it would drop the locks of every other
    connection of this process, and the next process to close the file would take its log away under them.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
