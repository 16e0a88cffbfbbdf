"""API keys of people and programs: made, listed, revoked; only their digests are kept.

A key has 256 random bits, so a plain digest of it tells nothing that could be searched for.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from edgewise.core.errors import ConfigError
from edgewise.core.keys import KeyLimits, KeyRecord
from edgewise.manage.state import State

PREFIX = "ew-"
_COLUMNS = "id, name, created_s, revoked_s, max_concurrent, requests_per_minute, weight, background"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key without its secret. Times are seconds since 1970."""

    record: KeyRecord
    created_s: float
    revoked_s: float | None = None


def create_key(state: State, name: str, limits: KeyLimits | None = None) -> tuple[StoredKey, str]:
    """A new key, and its secret, which is kept nowhere. Raises ConfigError for a name that has a key, or is none."""
    name = name.strip()
    if not name or not name.isprintable():
        raise ConfigError(f"{name!r} is no name for a key")
    limits = limits or KeyLimits()
    secret = PREFIX + secrets.token_urlsafe(32)
    stored = StoredKey(KeyRecord(f"key-{secrets.token_hex(4)}", name, limits), time.time())
    with state.writing() as connection:
        taken = connection.execute("SELECT 1 FROM keys WHERE name = ? AND revoked_s IS NULL", (name,))
        if taken.fetchone():
            raise ConfigError(f"{name} has a key already", hint=f"edgewise key revoke {name} takes it away")
        connection.execute(
            "INSERT INTO keys VALUES (?, ?, ?, ?, NULL, ?, ?, ?, ?)",
            (
                stored.record.id,
                name,
                _digest(secret),
                stored.created_s,
                limits.max_concurrent,
                limits.requests_per_minute,
                limits.weight,
                limits.background,
            ),
        )
    return stored, secret


def list_keys(state: State, *, with_revoked: bool = False) -> list[StoredKey]:
    """Oldest first."""
    where = "" if with_revoked else "WHERE revoked_s IS NULL"
    return [_stored(row) for row in state.read(f"SELECT {_COLUMNS} FROM keys {where} ORDER BY created_s, id")]


def revoke_key(state: State, who: str) -> StoredKey:
    """Take away a key, by its id or its name. Raises ConfigError where there is none."""
    with state.writing() as connection:
        row = connection.execute(
            f"SELECT {_COLUMNS} FROM keys WHERE revoked_s IS NULL AND (id = ? OR name = ?)", (who, who)
        ).fetchone()
        if row is None:
            raise ConfigError(f"there is no key {who!r}", hint="edgewise key list shows those there are")
        key = _stored(row)
        connection.execute("UPDATE keys SET revoked_s = ? WHERE id = ?", (time.time(), key.record.id))
    return key


class KeyBook:
    """The keys as a server looks them up: a key made or revoked elsewhere counts from the next request on. One thread."""

    def __init__(self, data_dir: Path) -> None:
        """Raises ConfigError."""
        self._state = State(data_dir)
        self._seen = -1
        self._records: dict[bytes, KeyRecord] = {}
        self._any = False

    @property
    def required(self) -> bool:
        """Whether a key was ever made: then nobody is let in without one, also after the last was revoked."""
        self._refresh()
        return self._any

    def lookup(self, key: str, /) -> KeyRecord | None:
        self._refresh()
        return self._records.get(_digest(key))

    def _refresh(self) -> None:
        now = self._state.changes()
        if now == self._seen:
            return
        rows = self._state.read(f"SELECT digest, {_COLUMNS} FROM keys")
        self._any = bool(rows)
        keys = [(cast("bytes", row[0]), _stored(row[1:])) for row in rows]
        self._records = {digest: key.record for digest, key in keys if key.revoked_s is None}
        self._seen = now

    def close(self) -> None:
        self._state.close()


def _stored(row: tuple[Any, ...]) -> StoredKey:
    key_id, name, created_s, revoked_s, max_concurrent, per_minute, weight, background = row
    limits = KeyLimits(max_concurrent, per_minute, weight, bool(background))
    return StoredKey(KeyRecord(key_id, name, limits), created_s, revoked_s)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
