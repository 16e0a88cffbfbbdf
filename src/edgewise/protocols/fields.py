"""Strict reading of JSON objects: one reader an object, errors that name the dotted path, and a list of what nobody read.

null means "not given" for every field, as clients that serialise optional fields send it. Booleans are not numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson

from edgewise.core.errors import InvalidRequestError

_SHOWN_CHARS = 80
_MAX_CACHE_SALT_CHARS = 1024


def shown(value: object) -> str:
    """A value as short JSON, for an error message."""
    try:
        text = orjson.dumps(value).decode()
    except (orjson.JSONEncodeError, ValueError):  # what is nested too deeply to write again, for one
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def invalid(path: str, rule: str, value: object = ..., *, code: str | None = None) -> InvalidRequestError:
    """The error for a field that breaks `rule` ("must be ..." or a whole clause)."""
    got = "" if value is ... else f", got {shown(value)}"
    return InvalidRequestError(f"{path} {rule}{got}", param=path, code=code)


class Fields:
    """Typed access to one JSON object. `path` is the object's own dotted name, "" for the body."""

    __slots__ = ("_read", "data", "path")

    def __init__(self, data: Mapping[str, Any], path: str = "") -> None:
        self.data = data
        self.path = path
        self._read: set[str] = set()

    @classmethod
    def of(cls, value: object, path: str) -> Fields:
        """A reader of `value`, which must be a JSON object."""
        if not isinstance(value, dict):
            error = invalid(path or "the request body", "must be a JSON object", value)
            error.param = path or None
            raise error
        return cls(value, path)

    def name(self, key: str) -> str:
        """The dotted path of a field of this object."""
        return f"{self.path}.{key}" if self.path else key

    def fail(self, key: str, rule: str, value: object = ...) -> InvalidRequestError:
        return invalid(self.name(key), rule, value)

    def get(self, key: str) -> Any:
        """The raw value, None when absent."""
        self._read.add(key)
        return self.data.get(key)

    def require(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise self.fail(key, "is required")
        return value

    def string(self, key: str, *, max_len: int | None = None) -> str | None:
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.fail(key, "must be a string", value)
        if max_len is not None and len(value) > max_len:
            raise self.fail(key, f"must be at most {max_len} characters, got {len(value)}")
        return value

    def boolean(self, key: str, default: bool = False) -> bool:
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(key, "must be true or false", value)
        return value

    def integer(self, key: str, *, low: int | None = None, high: int | None = None) -> int | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(key, "must be an integer", value)
        if (low is not None and value < low) or (high is not None and value > high):
            upper = "" if high is None else f" and at most {high}"
            raise self.fail(key, f"must be at least {low}{upper}", value)
        return value

    def number(self, key: str) -> float | None:
        """A finite number. Infinities can come from literals such as 1e999."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.fail(key, "must be a finite number", value)
        return float(value)

    def array(self, key: str) -> list[Any] | None:
        value = self.get(key)
        if value is not None and not isinstance(value, list):
            raise self.fail(key, "must be an array", value)
        return value

    def strings(self, key: str) -> list[str] | None:
        values = self.array(key)
        for i, value in enumerate(values or ()):
            if not isinstance(value, str):
                raise self.fail(f"{key}[{i}]", "must be a string", value)
        return values

    def token_ids(self, key: str) -> list[int] | None:
        values = self.array(key)
        for i, value in enumerate(values or ()):
            if not is_token_id(value):
                raise self.fail(f"{key}[{i}]", "must be a token id", value)
        return values

    def object(self, key: str) -> Fields | None:
        value = self.get(key)
        return None if value is None else Fields.of(value, self.name(key))

    def unread(self) -> tuple[str, ...]:
        """Names of the fields that were given and that nobody read."""
        return tuple(key for key, value in self.data.items() if value is not None and key not in self._read)


def is_token_id(value: object) -> bool:
    """Whether a JSON value can be a token id at all (the vocabulary is checked where it is known)."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def read_cache_salt(fields: Fields) -> str:
    """Whose blocks of the prefix cache a request shares, as vLLM spells it: 1 to 1024 characters; "" where it is left out."""
    salt = fields.string("cache_salt", max_len=_MAX_CACHE_SALT_CHARS)
    if salt == "":
        raise fields.fail("cache_salt", "must not be empty")
    return salt or ""
