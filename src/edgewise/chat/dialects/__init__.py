"""How models write tool calls: one description a dialect, from which come parser, grammar, renderer and instructions."""

from __future__ import annotations

from edgewise.chat.dialects.dialect import ToolDialect
from edgewise.chat.dialects.events import ArgumentPiece, CallEnd, CallStart, TextPiece, ToolEvent
from edgewise.chat.dialects.parser import ToolParser
from edgewise.chat.dialects.table import dialect, names

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
