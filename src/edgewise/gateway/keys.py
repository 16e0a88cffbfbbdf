"""Who may ask: API keys looked up on every request, so that a key created or revoked elsewhere counts at once."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Protocol

from edgewise.core.keys import KeyLimits, KeyRecord


class KeyStore(Protocol):
    """Where keys are kept. `lookup` is called on the event loop for every request, so it must be quick."""

    @property
    def required(self) -> bool:
        """Whether requests without a key are refused."""
        ...

    def lookup(self, key: str, /) -> KeyRecord | None: ...


ANYBODY = KeyRecord("anonymous")
"""Who asks where no key is required."""


class OpenDoor:
    """No keys: everybody may ask."""

    required = False

    def lookup(self, key: str, /) -> KeyRecord | None:
        return ANYBODY


class StaticKeys:
    """Keys given at the start. Only their digests are kept; the records' ids are made of those."""

    required = True

    def __init__(self, keys: Iterable[str], limits: KeyLimits | None = None) -> None:
        limits = limits or KeyLimits()
        self._known = [
            (digest := _digest(key), KeyRecord(f"key-{digest.hex()[:8]}", limits=limits)) for key in keys
        ]

    def lookup(self, key: str, /) -> KeyRecord | None:
        """Compares with every key, so that the time taken tells nothing about which one was near."""
        digest = _digest(key)
        found = None
        for known, record in self._known:
            if hmac.compare_digest(digest, known):
                found = record
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
