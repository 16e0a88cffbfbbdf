"""All dialects by all their names."""

from __future__ import annotations

from edgewise.chat.dialects.dialect import ToolDialect
from edgewise.chat.dialects.table_json import JSON_DIALECTS
from edgewise.chat.dialects.table_other import OTHER_DIALECTS
from edgewise.core.errors import ConfigError

DIALECTS = (*JSON_DIALECTS, *OTHER_DIALECTS)
BY_NAME = {name: each for each in DIALECTS for name in (each.name, *each.aliases)}


def names() -> tuple[str, ...]:
    """Every name that `dialect` knows, aliases included."""
    return tuple(sorted(BY_NAME))


def dialect(name: str) -> ToolDialect:
    """The dialect of a name or an alias. Raises ConfigError, which lists every name."""
    if name not in BY_NAME:
        raise ConfigError(f"unknown tool dialect {name!r}; known: {', '.join(names())}")
    return BY_NAME[name]
