"""Keys: shown once, kept as digests, known at once to a server that runs; and the state file under a process that is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from edgewise.core.errors import ConfigError
from edgewise.core.keys import KeyLimits
from edgewise.manage.keys import KeyBook, create_key, list_keys, revoke_key
from edgewise.manage.state import State


@pytest.fixture
def state(tmp_path: Path):
    opened = State(tmp_path)
    yield opened
    opened.close()


def test_a_key_is_found_by_its_secret_alone(state: State, tmp_path: Path):
    limits = KeyLimits(max_concurrent=2, requests_per_minute=30, weight=2.0, background=True)
    key, secret = create_key(state, "ada", limits)
    book = KeyBook(tmp_path)
    assert book.lookup(secret) == key.record and key.record.limits == limits
    assert book.lookup(secret[:-1]) is None and book.lookup("") is None and book.lookup("ada") is None
    assert book.lookup("\udcff") is None, "any bytes of a header"


def test_the_secret_is_kept_nowhere(state: State, tmp_path: Path):
    _, secret = create_key(state, "ada")
    state.close()
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name


def test_what_changes_elsewhere_counts_from_the_next_request_on(state: State, tmp_path: Path):
    book = KeyBook(tmp_path)
    assert not book.required
    key, secret = create_key(state, "ada")
    assert book.required and book.lookup(secret) == key.record
    revoke_key(state, "ada")
    assert book.lookup(secret) is None
    assert book.required, "the last key's end does not open the door"


def test_one_key_a_name(state: State):
    key, _ = create_key(state, "ada")
    with pytest.raises(ConfigError, match="has a key already"):
        create_key(state, " ada ")
    assert revoke_key(state, key.record.id).record == key.record
    create_key(state, "ada")
    assert [one.record.name for one in list_keys(state)] == ["ada"]
    assert [one.revoked_s is None for one in list_keys(state, with_revoked=True)] == [False, True]


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x00"])
def test_a_name_that_is_none(state: State, name: str):
    with pytest.raises(ConfigError, match="no name"):
        create_key(state, name)


def test_nobody_to_revoke(state: State):
    with pytest.raises(ConfigError, match="there is no key 'eve'"):
        revoke_key(state, "eve")


def test_a_damaged_or_newer_file_is_a_clear_error(tmp_path: Path):
    (tmp_path / "state.db").write_bytes(b"no database at all, " * 300)
    with pytest.raises(ConfigError, match=r"state\.db cannot be used"):
        State(tmp_path)
    (tmp_path / "state.db").unlink()
    State(tmp_path).close()
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigError, match="version 99"):
        State(tmp_path)


def test_a_file_that_cannot_be_opened_is_a_clear_error(tmp_path: Path):
    (tmp_path / "state.db").mkdir()
    with pytest.raises(ConfigError, match=r"state\.db cannot be (opened|used)"):
        State(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"state\.db cannot be made"):
        State(tmp_path / "file")


def test_the_table_is_read_again_only_after_a_change(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    secrets = [create_key(state, f"user-{i}")[1] for i in range(20)]
    book = KeyBook(tmp_path)
    queries: list[str] = []
    read = State.read

    def counted(self: State, query: str, *values: object) -> list[tuple[object, ...]]:
        queries.append(query)
        return read(self, query, *values)

    monkeypatch.setattr(State, "read", counted)
    for secret in 10 * secrets:
        assert book.required and book.lookup(secret) is not None
    assert len(queries) == 1
    revoke_key(state, "user-3")
    assert book.lookup(secrets[3]) is None and len(queries) == 2


def test_another_connection_of_the_process_keeps_its_locks(tmp_path: Path):
    """POSIX locks go with the first descriptor of a file that a process closes: opening the state again must not do that."""
    kept = State(tmp_path)
    create_key(kept, "before")
    State(tmp_path).close()
    other = "import sys, pathlib; from edgewise.manage.state import State; State(pathlib.Path(sys.argv[1])).close()"
    subprocess.run([sys.executable, "-c", other, str(tmp_path)], check=True, env={**os.environ})
    assert (tmp_path / "state.db-wal").exists(), "the other process saw that it was not the last"
    create_key(kept, "after")
    reader = State(tmp_path)
    assert [key.record.name for key in list_keys(reader)] == ["before", "after"]
    reader.close()
    kept.close()


WRITER = """
import sys
from pathlib import Path
from edgewise.manage.keys import create_key
from edgewise.manage.state import State
state = State(Path(sys.argv[1]))
for i in range(100000):
    name = f"{sys.argv[2]}-{i}"
    create_key(state, name)
    print(name, flush=True)
"""


def test_a_writer_killed_at_any_moment_loses_nothing_it_had_finished(tmp_path: Path):
    told: set[str] = set()
    for attempt in range(6):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(attempt)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as writer:
            assert writer.stdout is not None
            for _ in range(3 + 5 * attempt):
                told.add(writer.stdout.readline().strip())
            writer.send_signal(signal.SIGKILL)
            told |= {line.strip() for line in writer.stdout if line.endswith("\n")}
    state = State(tmp_path)
    kept = {key.record.name for key in list_keys(state)}
    assert told <= kept and len(kept - told) <= 6, "at most one a process was finished and not told"
    assert state.read("PRAGMA integrity_check") == [("ok",)]
    state.close()
