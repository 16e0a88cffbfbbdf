"""Thinking and content apart, as they come: text in, (kind, text) pieces out, the same however the text was cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["reasoning", "content"]
Piece = tuple[Kind, str]


@dataclass(frozen=True, slots=True)
class Marks:
    """The literals that matter to a splitter.

    `starts` and `ends` stand round thinking. `interrupts` end it too but are content. `frames` stand between messages and are
    dropped. `opens` and `closes` are tags round the content as a whole. `reopens`: thinking may begin again after content.
    """

    starts: tuple[str, ...]
    ends: tuple[str, ...]
    interrupts: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    reopens: bool = False


class Finder:
    """Finds the first of several literals in text that grows; where several begin at one place the longest counts."""

    def __init__(self, literals: tuple[str, ...]) -> None:
        self._literals = tuple(sorted(set(literals), key=len, reverse=True))
        self._longest = len(self._literals[0]) if self._literals else 0
        self._pattern = re.compile("|".join(map(re.escape, self._literals))) if self._literals else None

    def find(self, text: str, *, final: bool) -> tuple[int, str]:
        """(place, literal) of the first; (place, "") where one may begin there; (length, "") when none does."""
        if self._pattern is None:
            return len(text), ""
        match = self._pattern.search(text)
        end = match.start() + 1 if match else len(text)
        if not final:
            for place in range(max(0, len(text) - self._longest + 1), end):
                rest = text[place:]
                if any(len(literal) > len(rest) and literal.startswith(rest) for literal in self._literals):
                    return place, ""
        return (match.start(), match.group()) if match else (len(text), "")


class ReasoningSplitter:
    """Splits one answer. `busy`, where set, says that the content so far ends inside a tool call, where nothing is a mark.

    `push` and `finish` are iterators, to be consumed to the end: a piece is to be dealt with before the next is asked for, since
    `busy` may depend on it. Line ends round thinking belong to its marks, and are dropped with them.
    """

    def __init__(self, marks: Marks, *, is_open: bool, whole: bool = False, restored: str = "") -> None:
        """`whole`: nothing is split, all is content, with `restored` before it."""
        self.busy: Callable[[], bool] = bool
        self._marks = marks
        self._text = ""
        self._restored = restored
        self._state: Literal["before", "thinking", "content", "whole"] = "before"
        self._fresh = False  # nothing of the current stretch has been sent; line ends are dropped
        self._wrapped = False
        self._newlines = ""
        self._finders: dict[tuple[str, bool, bool], Finder] = {}
        if whole:
            self._state = "whole"
        elif is_open:
            self._enter("thinking")

    @property
    def thinking(self) -> bool:
        """Whether the answer so far ends inside a thought."""
        return self._state == "thinking"

    def push(self, text: str) -> Iterator[Piece]:
        """More of the answer. What may be a piece of a mark waits."""
        self._text += text
        return self._pieces(final=False)

    def finish(self) -> Iterator[Piece]:
        """The answer is over: what waited is text."""
        return self._pieces(final=True)

    def _pieces(self, *, final: bool) -> Iterator[Piece]:
        if self._text:
            self._text, self._restored = self._restored + self._text, ""
        while self._text:
            finder = self._finder()
            place, literal = finder.find(self._text, final=final)
            if self._state == "before" and (not literal or self._text[:place].strip()):
                if not final and not self._text[:place].strip():
                    return
                self._state = "content"
                continue
            before, self._text = self._text[:place], self._text[place:]
            yield from self._send(before)
            if self._finder() is not finder:
                continue  # what was sent changed what counts as a mark
            if not literal:
                return
            if self._state == "content" and self.busy():
                yield from self._send(self._text[:1])
                self._text = self._text[1:]
            else:
                self._consume(literal)

    def _finder(self) -> Finder:
        key = (self._state, self._fresh, self._wrapped)
        if key not in self._finders:
            self._finders[key] = Finder(self._literals())
        return self._finders[key]

    def _literals(self) -> tuple[str, ...]:
        marks = self._marks
        match self._state:
            case "before":
                return (*marks.starts, *marks.ends, *marks.frames)
            case "thinking":
                return (*marks.ends, *marks.interrupts, *(marks.starts if self._fresh else ()))
            case "content":
                return (
                    *marks.frames,
                    *(marks.starts if marks.reopens else ()),
                    *(marks.opens if self._fresh else ()),
                    *(marks.closes if self._wrapped else ()),
                )
            case _:
                return ()

    def _consume(self, literal: str) -> None:
        marks = self._marks
        if self._state == "thinking" and literal not in marks.starts:
            self._enter("content")
            if literal in marks.interrupts:
                return
        elif literal in marks.starts:
            self._enter("thinking")
        elif literal in marks.opens:
            self._wrapped = True
        elif literal in marks.ends and literal not in marks.frames:
            self._enter("content")  # an empty thought that the prompt opened and closed
        self._text = self._text[len(literal) :]

    def _enter(self, state: Literal["thinking", "content"]) -> None:
        self._state = state
        self._fresh = True
        self._newlines = ""

    def _send(self, text: str) -> Iterator[Piece]:
        if self._state == "before":
            return  # white space before a mark
        if self._state == "thinking":
            yield from self._send_thought(text)
            return
        if self._fresh:
            text = text.lstrip("\r\n")
            self._fresh = not text
        if text:
            yield "content", text

    def _send_thought(self, text: str) -> Iterator[Piece]:
        """Line ends wait until something follows them in the thought; at its beginning they are dropped."""
        text = self._newlines + text
        body = text.rstrip("\r\n")
        self._newlines = text[len(body) :]
        if self._fresh:
            body = body.lstrip("\r\n")
            if not body.strip():
                self._newlines = body + self._newlines
                return
            self._fresh = False
        if body:
            yield "reasoning", body
