"""Text that arrives in pieces, read by generators that wait for more where they must.

A reading function is a `Step`: it yields when the text so far does not decide what comes next, and is resumed when there is more. Every
decision depends on the characters alone, never on where they were cut, so any chunking gives the same result.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Step = Generator[None, None, T]

SPACE = re.compile(r"\s*")


class MalformedError(Exception):
    """The text is not what the dialect writes here, or ends too early (`Reader.cut`). Never leaves this package."""


class Reader:
    """A growing text with a place in it.

    `pos` is where reading goes on. `kept` is where it may go back to: what lies before has been accounted for, and is forgotten.
    `cut`: something was still expected when the text ended.
    """

    def __init__(self) -> None:
        self.text = ""
        self.pos = 0
        self.kept = 0
        self.ended = False
        self.cut = False

    def feed(self, text: str) -> None:
        """Append text, and forget what no one can come back to."""
        self.text = self.text[self.kept :] + text
        self.pos -= self.kept
        self.kept = 0

    def more(self) -> Step[bool]:
        """Wait for more text (a wait may end without any). False: there is none to come."""
        if self.ended:
            self.cut = True
            return False
        yield
        return True

    def need(self, count: int) -> Step[bool]:
        """Wait until `count` characters can be read. False: the text ends before."""
        while len(self.text) - self.pos < count:
            if not (yield from self.more()):
                return False
        return True

    def peek(self) -> Step[str]:
        """The next character, not consumed; "" at the end of the text."""
        found = yield from self.need(1)
        return self.text[self.pos] if found else ""

    def sees(self, literal: str, ahead: int = 0) -> Step[bool]:
        """Whether `literal` comes next (`ahead` characters from here). Waits only while it still may."""
        while True:
            have = self.text[self.pos + ahead : self.pos + ahead + len(literal)]
            if have == literal:
                return True
            if not literal.startswith(have) or not (yield from self.more()):
                return False

    def take(self, *literals: str) -> Step[str | None]:
        """Consume the first of `literals` that comes next; None when none does."""
        for literal in literals:
            if (yield from self.sees(literal)):
                self.pos += len(literal)
                return literal
        return None

    def expect(self, literal: str) -> Step[None]:
        """Consume `literal`. Raises MalformedError when something else comes."""
        if not (yield from self.sees(literal)):
            raise MalformedError(f"expected {literal!r}")
        self.pos += len(literal)

    def skip_space(self) -> Step[str]:
        """Consume white space, and return it."""
        skipped = ""
        while True:
            match = SPACE.match(self.text, self.pos)
            assert match is not None
            skipped += match.group()
            self.pos = match.end()
            if self.pos < len(self.text) or not (yield from self.more()):
                return skipped

    def run(self, pattern: re.Pattern[str]) -> Step[str]:
        """Consume characters as long as each matches `pattern` (of one character, repeated), and return them."""
        taken = ""
        while True:
            match = pattern.match(self.text, self.pos)
            taken += match.group() if match else ""
            self.pos = match.end() if match else self.pos
            if self.pos < len(self.text) or not (yield from self.more()):
                return taken

    def until(self, *stops: str, limit: int = 1024) -> Step[tuple[str, str]]:
        """Consume the text before the first of `stops`, and the stop: (text, stop).

        Where several begin at one place the first named wins. Raises MalformedError when none comes within `limit` characters.
        """
        start = self.pos
        firsts = re.compile("[" + "".join(re.escape(stop[0]) for stop in stops) + "]")
        while True:
            match = firsts.search(self.text, self.pos)
            self.pos = match.start() if match else len(self.text)
            if self.pos - start > limit:
                raise MalformedError(f"none of {stops} within {limit} characters")
            if match is None:
                before = self.pos - start
                if not (yield from self.more()):
                    raise MalformedError(f"the text ended before any of {stops}")
                start = self.pos - before
                continue
            before = self.pos - start
            stop = yield from self.take(*stops)
            if stop is not None:
                end = self.pos - len(stop)
                return self.text[end - before : end], stop
            start = self.pos - before
            self.pos += 1
