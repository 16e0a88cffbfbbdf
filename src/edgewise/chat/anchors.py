"""Where a regular expression is anchored: its choices apart, without the signs of the beginning and the end."""

from __future__ import annotations

import re
from dataclasses import dataclass

PART = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|[()|^$]", re.DOTALL)  # what is escaped and classes are one part
ANCHORS = frozenset({"^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z"})
FLAGS = re.compile(r"\(\?[a-zA-Z-]+\)")  # for all that follows, the next choice too


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the choices a pattern consists of, and whether it says where the text starts and ends."""

    inner: str
    starts: bool
    ends: bool

    @property
    def is_anchored_inside(self) -> bool:
        return not ANCHORS.isdisjoint(PART.findall(self.inner))


def choices(pattern: str) -> list[Choice]:
    """What stands between the bars that are in no brackets; one where flags reach over them."""
    bars = _bars(pattern)
    if bars and FLAGS.search(pattern):
        return [Choice(pattern, starts=False, ends=False)]
    found, start = [], 0
    for bar in (*bars, len(pattern)):
        found.append(_choice(pattern[start:bar]))
        start = bar + 1
    return found


def _bars(pattern: str) -> list[int]:
    depth, found = 0, []
    for match in PART.finditer(pattern):
        depth += {"(": 1, ")": -1}.get(match.group(), 0)
        if match.group() == "|" and depth == 0:
            found.append(match.start())
    return found


def _choice(text: str) -> Choice:
    inner = text.removeprefix("^")
    ends = inner.endswith("$") and (len(inner) - len(inner[:-1].rstrip("\\"))) % 2 == 1
    return Choice(inner[:-1] if ends else inner, starts=inner != text, ends=ends)
