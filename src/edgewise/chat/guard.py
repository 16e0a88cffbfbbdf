"""Keeps text text: control tokens written in messages must not become control tokens in the prompt.

Before rendering, every control token's text inside untrusted strings is broken by a character that occurs nowhere in the input
(a Unicode noncharacter, so templates that trim, split or compare meet nothing they know). After rendering the text is cut at
that character: the pieces joined are what the template meant to write, and a control token counts only inside one piece.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from edgewise.core.errors import InvalidRequestError
from edgewise.text.specials import TokenFinder

NONCHARACTERS = [chr(c) for c in range(0xFDD0, 0xFDF0)] + [
    chr(plane << 16 | low) for plane in range(1, 17) for low in (0xFFFE, 0xFFFF)
]


class ControlGuard:
    """Breaks the texts of a set of control tokens. Immutable; any thread.

    A control token of a single character cannot be broken and is not guarded against.
    """

    def __init__(self, control_tokens: Collection[str]) -> None:
        self._finder = TokenFinder(text for text in control_tokens if len(text) > 1)

    @functools.cached_property
    def _edges(self) -> tuple[frozenset[str], frozenset[str], int]:
        """Proper beginnings and ends of the tokens, and the longest token's length."""
        texts = self._finder.texts
        starts = frozenset(text[:n] for text in texts for n in range(1, len(text)))
        ends = frozenset(text[-n:] for text in texts for n in range(1, len(text)))
        return starts, ends, max(map(len, texts), default=0)

    def break_text(self, text: str, mark: str, *, spare: Callable[[str], bool] | None = None) -> str:
        """`text` with `mark` inside every control token but those `spare` names, and at its edges where a neighbour could
        complete one."""
        if not text or not self._finder.texts:
            return text
        pieces: list[str] = []
        done = 0
        match = self._finder.search(text)
        while match is not None:
            if spare is None or not spare(match.group()):
                pieces += text[done : match.start() + 1], mark
                done = match.start() + 1
            match = self._finder.search(text, match.start() + 1)  # another may start inside this one
        broken = "".join(pieces) + text[done:]
        starts, ends, longest = self._edges
        lengths = range(1, min(longest, len(text) + 1))
        before = mark if any(text[:n] in ends for n in lengths) else ""
        after = mark if any(text[-n:] in starts for n in lengths) else ""
        return before + broken + after

    def match_end(self, text: str, position: int) -> int:
        """The end of the control token that starts at `position`, or `position`."""
        match = self._finder.search(text, position)
        return match.end() if match is not None and match.start() == position else position


def pick_marks(values: Any, count: int, source: str) -> list[str]:
    """Characters that occur in no string of `values` nor in the template's `source`. Raises InvalidRequestError if all do."""
    strings = [source, *leaves(values)]
    marks = []
    for char in NONCHARACTERS:
        if not any(char in text for text in strings):
            marks.append(char)
            if len(marks) == count:
                return marks
    raise InvalidRequestError("the messages use too many of Unicode's noncharacters", param="messages")


def leaves(value: Any) -> Iterator[str]:
    """Every string in a JSON value, keys as well."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)


def map_leaves(value: Any, change: Callable[[str], str]) -> Any:
    """A copy of a JSON value with every string, keys as well, changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(key)): map_leaves(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [map_leaves(item, change) for item in value]
    return value
