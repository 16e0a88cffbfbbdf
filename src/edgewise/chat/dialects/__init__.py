"""How models write tool calls: one description a dialect, from which come parser, grammar, renderer and instructions."""

from __future__ import annotations

from edgewise.chat.dialects.dialect import ToolDialect
from edgewise.chat.dialects.events import ArgumentPiece, CallEnd, CallStart, TextPiece, ToolEvent
from edgewise.chat.dialects.parser import ToolParser
from edgewise.chat.dialects.table import DIALECTS
from edgewise.core.errors import ConfigError

__all__ = [
    "ArgumentPiece",
    "CallEnd",
    "CallStart",
    "TextPiece",
    "ToolDialect",
    "ToolEvent",
    "ToolParser",
    "dialect",
    "names",
]

_BY_NAME = {name: each for each in DIALECTS for name in (each.name, *each.aliases)}


def names() -> tuple[str, ...]:
    """Every name that `dialect` knows, aliases included."""
    return tuple(sorted(_BY_NAME))


def dialect(name: str) -> ToolDialect:
    """The dialect of a name or an alias. Raises ConfigError, which lists every name."""
    if name not in _BY_NAME:
        raise ConfigError(f"unknown tool dialect {name!r}; known: {', '.join(names())}")
    return _BY_NAME[name]
