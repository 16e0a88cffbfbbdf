"""The incremental parser of a dialect: text in, events out, the same however the text was cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgewise.chat.dialects.events import ToolEvent, merged
from edgewise.chat.dialects.form import Form
from edgewise.chat.dialects.parsing import Parsing
from edgewise.chat.dialects.reader import MalformedError, Step
from edgewise.core.chat import ToolDefinition


@dataclass(frozen=True, slots=True)
class Noise:
    """Framing between messages that is no text: from `start` to `end` (right after it when empty). `bare`: only at the start."""

    start: str
    end: str = ""
    bare: bool = False

    def read(self, parsing: Parsing) -> Step[None]:
        """Consume it. Raises MalformedError when it does not end soon."""
        yield from parsing.reader.expect(self.start)
        if self.end:
            yield from parsing.reader.until(self.end, limit=256)


@dataclass(frozen=True, slots=True)
class Opening:
    """A text at which something other than text may begin."""

    literal: str
    what: Form | Noise


class ToolParser:
    """Reads one answer. Give it text with `push` as it comes, then call `finish` once."""

    def __init__(
        self,
        forms: Sequence[Form],
        noise: Sequence[Noise],
        tools: Sequence[ToolDefinition],
        new_id: Callable[[], str],
    ) -> None:
        self._parsing = Parsing(tools, new_id)
        self._openings = [Opening(literal, form) for form in forms for literal in form.openings]
        self._openings += [Opening(each.start, each) for each in noise]
        marked = {opening.literal[0] for opening in self._openings if not opening.what.bare}
        first = {opening.literal[0] for opening in self._openings}
        self._later = re.compile("[" + re.escape("".join(sorted(marked))) + "]") if marked else None
        self._first = re.compile("[" + re.escape("".join(sorted(first))) + "]")
        self._steps = self._run()
        next(self._steps)

    def push(self, text: str) -> list[ToolEvent]:
        """More of the answer. Returns what is certain now; text that may be the beginning of a call waits."""
        if text:
            self._parsing.reader.feed(text)
            next(self._steps)
        return self._taken()

    def finish(self) -> list[ToolEvent]:
        """The answer is over. Returns the rest: text held back, and the end of a call that was cut."""
        self._parsing.reader.ended = True
        for _ in self._steps:
            pass
        return self._taken()

    def _taken(self) -> list[ToolEvent]:
        events, self._parsing.events = self._parsing.events, []
        return merged(events)

    def _run(self) -> Step[None]:
        yield
        while (yield from self._text()):
            for opening in self._openings:
                if (yield from self._opens(opening)) and (yield from self._read(opening)):
                    break
            else:
                if not self._cut_framing():
                    self._pass(1)
        self._parsing.finish_text()

    def _cut_framing(self) -> bool:
        """Whether the answer ended inside what stands round calls, right behind one. That is no text: it is left out."""
        parsing, reader = self._parsing, self._parsing.reader
        if not (reader.cut and parsing.after_call):
            return False
        reader.pos = reader.kept = len(reader.text)
        return True

    def _text(self) -> Step[bool]:
        """Report text up to where something may begin; False at the end."""
        reader = self._parsing.reader
        while True:
            stop = self._first if self._parsing.at_start else self._later
            match = stop.search(reader.text, reader.pos) if stop else None
            end = match.start() if match else len(reader.text)
            at_start = self._parsing.at_start
            self._pass(end - reader.pos)
            if at_start != self._parsing.at_start:
                continue
            if match is not None:
                return True
            if not (yield from reader.more()):
                return False

    def _pass(self, count: int) -> None:
        reader = self._parsing.reader
        reader.pos += count
        self._parsing.text(reader.text[reader.pos - count : reader.pos])
        reader.kept = reader.pos

    def _opens(self, opening: Opening) -> Step[bool]:
        if opening.what.bare and not self._parsing.at_start:
            return False
        return (yield from self._parsing.reader.sees(opening.literal))

    def _read(self, opening: Opening) -> Step[bool]:
        """Read what begins here. False: it turned out to be text, and nothing was consumed."""
        parsing, reader = self._parsing, self._parsing.reader
        start_count = parsing.accounted
        try:
            yield from opening.what.read(parsing)
        except MalformedError:
            if parsing.in_call:
                parsing.end_call(complete=False)
            if self._cut_framing():
                return True
            reader.pos = reader.kept
            if parsing.accounted == start_count:
                return False
        if not self._cut_framing():
            reader.kept = reader.pos
        return True
