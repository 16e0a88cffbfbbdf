"""One way of framing calls: what opens and closes them, alone or as a list; and how a body stands inside."""

from __future__ import annotations

import re
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Protocol

from edgewise.chat.dialects.parsing import Parsing
from edgewise.chat.dialects.reader import MalformedError, Step
from edgewise.chat.dialects.rules import one_of, sequence
from edgewise.core.chat import ToolDefinition
from edgewise.core.grammar import Repeat, Rule, Text, Triggered

MARKER = re.compile(r"<[|｜][^<>]*?[|｜]>|</?[\w:▁.-]+>|\[/?[A-Z_]+\]")


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call to be written: `index` counts the calls of the answer from 0."""

    name: str
    arguments: dict[str, Any]
    index: int


class Body(Protocol):
    """How one call is written between its framing. Shapes differ; each is read, written and laid out as a rule."""

    @property
    def opening(self) -> str:
        """What every body begins with, "" when it begins with a name."""

    @property
    def literals(self) -> tuple[str, ...]:
        """Fixed texts it holds, for control tokens."""

    def start(self, tool: ToolDefinition) -> str:
        """What a call of `tool` begins with and other text hardly ever does; it binds the grammar where nothing else marks a call."""

    def read(self, parsing: Parsing, end: str) -> Step[None]:
        """Read one call, `end` (not consumed) following. Raises MalformedError."""

    def rule(self, tool: ToolDefinition, end: str) -> Rule:
        """What a call of `tool` may look like, its `end` included: raw text ends only with what follows it."""

    def write(self, call: WrittenCall) -> str:
        """One call."""


@dataclass(frozen=True, slots=True)
class Form:
    """`open` [ calls of `begin` body `end`, `joint` between ] `close`, all optional but the body.

    `bracketed`: the calls stand in square brackets with commas between, written as `brackets`. `prelude`, which may hold `{name}`, is
    written before a call that opens a message. `written_marker`: what binds the grammar, where the marker alone is too common a word. `bare`: nothing marks the form, so it is read only as the first
    thing of an answer. `also`: other spellings of the first marker that are read. `written`: the grammar offers it, else it is only read.
    `single`: it holds one call. White space around markers is written as given and read in any amount.
    """

    body: Body
    begin: str = ""
    end: str = ""
    open: str = ""
    close: str = ""
    joint: str = ""
    also: tuple[str, ...] = ()
    prelude: str = ""
    written_marker: str = ""
    brackets: tuple[str, str] = ("[", "]")
    bracketed: bool = False
    bare: bool = False
    single: bool = False
    written: bool = True

    @property
    def marker(self) -> str:
        """What the form begins with, as far as it is fixed."""
        return self.open.strip() or ("[" if self.bracketed else "") or self.begin.strip() or self.body.opening

    @property
    def openings(self) -> tuple[str, ...]:
        """What the parser takes as the beginning; calls are also read where their section was not opened."""
        inner = self.begin.strip() if self.open.strip() else ""
        return (self.marker, *self.also, *([inner] if inner else []))

    @property
    def literals(self) -> tuple[str, ...]:
        """Every fixed text of the form."""
        parts = (self.open, self.begin, self.end, self.close, *self.also)
        return tuple(part.strip() for part in parts if part.strip()) + self.body.literals

    # -- reading

    def read(self, parsing: Parsing) -> Step[None]:
        """Read the form's calls. Raises MalformedError; nothing has been reported then unless a call is open or over."""
        reader = parsing.reader
        if self.open and (yield from reader.take(self.open.strip(), *self.also)):
            yield from reader.skip_space()
        if self.bracketed:
            yield from reader.expect("[")
            yield from reader.skip_space()
        yield from self._call(parsing)
        while (yield from self._another(parsing)):
            yield from self._call(parsing)

    def _call(self, parsing: Parsing) -> Step[None]:
        reader = parsing.reader
        if self.begin.strip():
            if (yield from reader.take(self.begin.strip(), *(self.also if not self.open else ()))) is None:
                raise MalformedError(f"expected {self.begin!r}")
            yield from reader.skip_space()
        yield from self.body.read(parsing, self.end.strip())
        complete = yield from self._ended(parsing)
        parsing.end_call(complete)
        if not complete:
            raise MalformedError("the call does not end where it should")

    def _ended(self, parsing: Parsing) -> Step[bool]:
        """Consume the call's end. Where the answer ends, or something that can only follow a call comes, it may be missing."""
        reader = parsing.reader
        end = self.end.strip()
        if not end:
            return True
        before = len((yield from reader.skip_space()))
        if (yield from reader.take(end)) or not (yield from reader.peek()):
            return True
        for follower in (self.close.strip(), self.begin.strip()):
            if follower and (yield from reader.sees(follower)):
                return True
        reader.pos -= before
        return False

    def _another(self, parsing: Parsing) -> Step[bool]:
        """Whether another call follows; the section's end is consumed when it does not."""
        reader = parsing.reader
        if not (self.open or self.joint or self.bracketed):
            return False
        yield from reader.skip_space()
        joint = "," if self.bracketed else self.joint.strip()
        if joint and (yield from reader.take(joint)):
            yield from reader.skip_space()
            return True
        if self.bracketed:
            yield from reader.take("]")
            yield from reader.skip_space()
        close = self.close.strip()
        if close and (yield from reader.take(close)):
            parsing.claim()
            return False
        if not (yield from reader.peek()):
            parsing.claim()
            return False
        start = self.begin.strip() or self.body.opening
        if not self.bracketed and (yield from reader.sees(start)):
            return True
        return self._left(parsing)

    def _left(self, parsing: Parsing) -> bool:
        """The section was left without its end: what follows is text."""
        if self.bracketed and not self.close:
            parsing.claim()
        else:
            parsing.reader.pos = parsing.reader.kept
        return False

    # -- writing

    def write(self, calls: Seq[WrittenCall], *, joint: str) -> str:
        """The calls as a model would write them; `joint` stands between them where the form has no joint of its own."""
        joint = self._joint(joint)
        before, after = self._brackets
        text = joint.join(
            self.prelude.replace("{name}", call.name) + self.begin + self.body.write(call) + self.end
            for call in calls
        )
        return self.open + before + text + after + self.close

    @property
    def _brackets(self) -> tuple[str, str]:
        return self.brackets if self.bracketed else ("", "")

    def _joint(self, outer: str) -> str:
        if self.joint or self.bracketed:
            return self.joint or ", "
        return "" if self.open else outer

    def triggered(self, tools: Seq[ToolDefinition], *, parallel: bool) -> tuple[Triggered, ...]:
        """The form as regions of free text."""
        parallel = parallel and bool(self.open or self.bracketed or self.joint)
        if not self.bare:
            return (Triggered(self.written_marker or self.marker, self.rule(tools, parallel=parallel)),)
        groups: dict[str, list[ToolDefinition]] = {}
        for tool in tools:
            groups.setdefault(self._brackets[0] + self.body.start(tool), []).append(tool)
        return tuple(
            Triggered(start, self.rule(tools, parallel=parallel, first=group), at_start=True)
            for start, group in groups.items()
        )

    def rule(
        self,
        tools: Seq[ToolDefinition],
        *,
        parallel: bool,
        joint: str = "",
        first: Seq[ToolDefinition] | None = None,
        prelude: bool = False,
    ) -> Rule:
        """One call or more of `tools`, the first one of `first`; `joint` as in `write`, `prelude` where the answer begins with the call."""
        joint = self._joint(joint)
        before, after = self._brackets
        each = self._calls_rule(tools, prelude)
        if not parallel or self.single:
            calls = each if first is None else self._calls_rule(first, prelude)
        elif first is None or len(first) == len(tools):
            calls = Repeat(each, 1, None, Text(joint) if joint else None)
        else:
            calls = sequence(self._calls_rule(first, prelude), Repeat(sequence(Text(joint), each)))
        return sequence(Text(self.open + before), calls, Text(after + self.close))

    def _calls_rule(self, tools: Seq[ToolDefinition], prelude: bool) -> Rule:
        return one_of([self._call_rule(tool, prelude) for tool in tools])

    def _call_rule(self, tool: ToolDefinition, prelude: bool) -> Rule:
        before = self.prelude.replace("{name}", tool.name) if prelude else ""
        return sequence(Text(before + self.begin), self.body.rule(tool, self.end))
