"""The state of one answer's parser that all its readers share: the text, the events so far, the call under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgewise.chat.dialects.arguments import ArgumentWriter
from edgewise.chat.dialects.events import ArgumentPiece, CallEnd, CallStart, TextPiece, ToolEvent
from edgewise.chat.dialects.reader import Reader
from edgewise.chat.dialects.schema import ToolSchema
from edgewise.core.chat import ToolDefinition


class Parsing:
    """What has been read of an answer. `accounted` counts calls that are over, given back or not.

    White space beside calls is part of their framing: it waits in `gap` until it is known what follows, and goes out only before text.
    A call of a name that is not offered is read like any other and given back as the text it was.
    """

    def __init__(self, tools: Sequence[ToolDefinition], new_id: Callable[[], str]) -> None:
        self.reader = Reader()
        self.tools = {tool.name: ToolSchema(tool) for tool in tools}
        self.new_id = new_id
        self.events: list[ToolEvent] = []
        self.gap = ""
        self.at_start = True
        self.after_call = False
        self.in_call = False
        self.muted = False
        self.accounted = 0
        self.ids: set[str] = set()
        self.writer = ArgumentWriter(self._piece)

    def text(self, text: str) -> None:
        """Report text, white space at its end only when more follows."""
        body = text.rstrip()
        if body:
            self.events.append(TextPiece(self.gap + body))
            self.gap = ""
            self.at_start = self.after_call = False
        self.gap += text[len(body) :]

    def start_call(self, name: str, call_id: str = "") -> ArgumentWriter:
        """A call's name is known. Returns where its arguments go."""
        self.in_call = True
        self.muted = name not in self.tools
        self.writer = ArgumentWriter(self._piece)
        if not self.muted:
            self.gap = ""
            self.at_start = False
            if not call_id or call_id in self.ids:
                call_id = self.new_id()
            self.ids.add(call_id)
            self.events.append(CallStart(call_id, name))
            self.reader.kept = self.reader.pos
        return self.writer

    def schema(self, name: str) -> ToolSchema | None:
        """The schema of an offered tool."""
        return self.tools.get(name)

    def _piece(self, text: str) -> None:
        if not self.muted:
            self.reader.kept = self.reader.pos
            if text:
                self.events.append(ArgumentPiece(text))

    def end_call(self, complete: bool) -> None:
        """The call under way is over; what is open in its arguments is closed."""
        assert self.in_call
        self.in_call = False
        self.accounted += 1
        if self.muted:
            self.give_back()
            return
        kept = self.reader.kept
        self.writer.abandon()
        self.events.append(CallEnd(complete))
        self.after_call = True
        self.reader.kept = self.reader.pos if complete else kept

    def give_back(self) -> None:
        """What was read since the last thing accounted for is text after all."""
        self.text(self.reader.text[self.reader.kept : self.reader.pos])
        self.reader.kept = self.reader.pos

    def claim(self) -> None:
        """What was read since belongs to the calls before it: to a given-back call it is text too."""
        if self.muted:
            self.give_back()
        self.reader.kept = self.reader.pos

    def finish_text(self) -> None:
        """The answer is over: white space after the last call was framing, any other was text."""
        if self.gap and not self.after_call:
            self.events.append(TextPiece(self.gap))
        self.gap = ""
