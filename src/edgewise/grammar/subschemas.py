"""The schemas inside a schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]

_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "additionalItems")


def subschemas(schema: Any, path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every schema in a schema that is an object, outer ones first, with its place."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for keyword in _MAPS:
        if isinstance(inner := schema.get(keyword), dict):
            for name in list(inner):
                yield from subschemas(inner.get(name), (*path, keyword, name))
    for keyword in (*_LISTS, "items"):
        if isinstance(several := schema.get(keyword), list):
            for i, one in enumerate(several):
                yield from subschemas(one, (*path, keyword, i))
    for keyword in _SINGLE:
        yield from subschemas(schema.get(keyword), (*path, keyword))
