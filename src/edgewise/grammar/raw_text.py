"""How raw text ends: the mark that ends it is found in what follows, through optional parts and alternatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from edgewise.core.grammar import OneOf, RawText, Repeat, Rule, Sequence, Text

Item = Rule | int
"""A rule other than a sequence, or a control token."""

MAX_ENDS = 32


@dataclass(frozen=True, slots=True)
class End:
    """One way to go on after raw text: `text`, up to and including the first mark in it, then `rest`."""

    text: str
    rest: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class _Walk:
    text: str
    inner: tuple[Item, ...]  # taken apart already, to be read next
    num_taken: int  # of the items

    def grown(self, *items: Item) -> _Walk:
        return _Walk(self.text, (*items, *self.inner), self.num_taken)


def ends_of(
    raw: RawText, items: list[Item], flat: Callable[[Iterable[Rule]], Iterable[Item]]
) -> tuple[list[End], int]:
    """All ways to go on after `raw`, and how many of the items after it they take up. `flat` takes sequences apart."""
    todo = [_Walk("", (), 0)]
    found: list[_Walk] = []
    while todo:
        walk = todo.pop()
        if _mark_end(walk.text, raw.until) is not None or len(todo) + len(found) >= MAX_ENDS:
            found.append(walk)
            continue
        inner = walk.inner
        num_taken = walk.num_taken
        if not inner and num_taken < len(items):
            inner, num_taken = (items[num_taken],), num_taken + 1
        if not inner:
            found.append(walk)
            continue
        rest = _Walk(walk.text, inner[1:], num_taken)
        match inner[0]:
            case Text(text):
                todo.append(_Walk(walk.text + text, rest.inner, num_taken))
            case Sequence(rules):
                todo.append(rest.grown(*flat(rules)))
            case OneOf(rules):
                todo += [rest.grown(*flat((rule,))) for rule in reversed(rules)]
            case Repeat(rule, 0, 1, None):
                todo += [rest, rest.grown(*flat((rule,)))]
            case _:
                found.append(_Walk(walk.text, inner, num_taken))
    most = max(walk.num_taken for walk in found)
    return [_end(walk, raw.until, items[walk.num_taken : most]) for walk in found], most


def _end(walk: _Walk, until: tuple[str, ...], more: list[Item]) -> End:
    cut = _mark_end(walk.text, until)
    if cut is None:
        return End(walk.text, (*walk.inner, *more))
    left = (Text(walk.text[cut:]),) if cut < len(walk.text) else ()
    return End(walk.text[:cut], (*left, *walk.inner, *more))


def _mark_end(text: str, until: tuple[str, ...]) -> int | None:
    """Where the first mark in a text ends."""
    return min((at + len(mark) for mark in until if (at := text.find(mark)) >= 0), default=None)
