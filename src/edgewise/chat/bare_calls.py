"""Calls that a model writes as plain JSON, bare or in a code fence, where its dialect has marks for them. Small models do so all the time.

Only an answer that opens so is read, and only as long as it can still be a call of an offered tool: anything else goes out verbatim at
the character that decides it. With a grammar the same openings bind the name and the arguments.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgewise.chat.bare_call_rules import bare_call_regions
from edgewise.chat.dialects.arguments import ArgumentWriter, dumped
from edgewise.chat.dialects.events import TextPiece, ToolEvent, merged
from edgewise.chat.dialects.literals import LiteralReader
from edgewise.chat.dialects.parsing import Parsing
from edgewise.chat.dialects.reader import MalformedError, Step
from edgewise.core.chat import CUSTOM_INPUT, ToolDefinition

__all__ = ["BareCallReader", "bare_call_regions"]

NAME_KEYS = ("name", "function", "tool", "tool_name", "function_name")
ARGUMENT_KEYS = ("arguments", "parameters", "input", "args", "tool_input")
OTHER_KEYS = ("id", "type", "call_id", "tool_call_id", "index")
FENCE = "```"
LANGUAGE = re.compile(r"[\w-]*")
LANGUAGES = ("", "json", "jsonc", "tool_call", "tool_calls", "tool", "tools")


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


@dataclass(slots=True)
class _Call:
    """One call object being read; its keys come in any order."""

    name: str = ""
    id: str = ""
    early: str | None = None  # arguments that came before the name
    done: bool = False


class BareCallReader:
    """Reads the beginning of one answer. Give it text until `settled`; from then on it returns it as text at once.

    `calls_seen` counts the calls it found. Without `parallel` it takes only the first.
    """

    def __init__(
        self,
        tools: Sequence[ToolDefinition],
        *,
        parallel: bool = True,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self.settled = not tools
        self._tools = {tool.name: tool for tool in tools}
        self._parallel = parallel
        self._parsing = Parsing(tools, new_id)
        self._reader = self._parsing.reader
        self._steps = self._run()
        next(self._steps)

    @property
    def calls_seen(self) -> int:
        return self._parsing.accounted + self._parsing.in_call

    def push(self, text: str) -> list[ToolEvent]:
        """More of the answer. Text that may be the beginning of a call waits."""
        if self.settled:
            return [TextPiece(text)] if text else []
        if text:
            self._reader.feed(text)
            next(self._steps, None)
        return self._taken()

    def finish(self) -> list[ToolEvent]:
        """The answer is over: what waited is text, and a call that was cut is closed."""
        if not self.settled:
            self._reader.ended = True
            for _ in self._steps:
                pass
        return self._taken()

    def _taken(self) -> list[ToolEvent]:
        events, self._parsing.events = self._parsing.events, []
        return merged(events)

    def _run(self) -> Step[None]:
        yield
        while (yield from self._region()) and self._parallel:
            pass
        self.settled = True
        rest = self._reader.text[self._reader.kept :]
        if rest.strip() or (rest and not self._parsing.accounted):
            self._parsing.events.append(TextPiece(rest))

    def _region(self) -> Step[bool]:
        """Read one object, list or fence of calls. False: what comes next is none, or went wrong."""
        reader, parsing = self._reader, self._parsing
        try:
            yield from reader.skip_space()
            if parsing.accounted and (yield from reader.take(";", ",")):
                yield from reader.skip_space()
            fenced = yield from self._fence()
            yield from self._calls(fenced)
        except MalformedError:
            if parsing.in_call:
                parsing.end_call(complete=False)
            if reader.cut and parsing.accounted:  # the answer ended inside what stands round calls
                reader.kept = len(reader.text)
            return False
        reader.kept = reader.pos
        return True

    def _fence(self) -> Step[bool]:
        """A code fence's opening line, if there is one. Raises MalformedError for other languages than those calls come in."""
        reader = self._reader
        if (yield from reader.take(FENCE)) is None:
            return False
        language = ""
        while True:
            match = LANGUAGE.match(reader.text, reader.pos)
            language += match.group() if match else ""
            reader.pos = match.end() if match else reader.pos
            if not any(known.startswith(language.lower()) for known in LANGUAGES):
                raise MalformedError("a fence of another language")
            if reader.pos < len(reader.text) or not (yield from reader.more()):
                break
        if language.lower() not in LANGUAGES:
            raise MalformedError("a fence of another language")
        yield from reader.skip_space()
        return True

    def _calls(self, fenced: bool) -> Step[None]:
        """Calls up to the end of their list or fence; a bare one is alone."""
        reader = self._reader
        listed = bool((yield from reader.take("[")))
        while True:
            yield from reader.skip_space()
            yield from self._call()
            if not (listed or fenced):
                return
            yield from reader.skip_space()
            if not (yield from reader.peek()):
                return
            if (yield from reader.take(",")) or (fenced and (yield from reader.sees("{"))):
                continue
            if listed:
                yield from reader.expect("]")
                yield from reader.skip_space()
            if fenced and (yield from reader.peek()):
                yield from reader.expect(FENCE)
            return

    def _call(self) -> Step[None]:
        call = _Call()
        yield from self._object(call)
        if not call.done:
            raise MalformedError("no call")
        self._parsing.end_call(complete=True)

    def _object(self, call: _Call) -> Step[None]:
        reader = self._reader
        yield from reader.expect("{")
        yield from reader.skip_space()
        while not (yield from reader.take("}")):
            yield from self._entry(call)
            yield from reader.skip_space()
            if (yield from reader.take(",")):
                yield from reader.skip_space()
            elif not (yield from reader.sees("}")):
                if call.done and not (yield from reader.peek()):
                    return
                raise MalformedError("expected a comma")

    def _entry(self, call: _Call) -> Step[None]:
        """One key and its value. Raises MalformedError for a key that no call has."""
        reader = self._reader
        key = yield from LiteralReader(reader, _nowhere()).text()
        yield from reader.skip_space()
        yield from reader.expect(":")
        yield from reader.skip_space()
        if key in NAME_KEYS and not call.name:
            if (yield from reader.peek()) == "{":
                yield from self._object(call)
                return
            call.name = yield from self._name()
            if call.early is not None:
                self._whole_arguments(call, call.early)
        elif key in ARGUMENT_KEYS and not call.done and call.early is None:
            yield from self._arguments(call)
        elif key in OTHER_KEYS or call.done:
            value = yield from self._aside()
            if key == "id" and value.startswith('"'):
                call.id = str(json.loads(value))
        else:
            raise MalformedError("no key of a call")

    def _name(self) -> Step[str]:
        """The name of an offered tool. Raises MalformedError at the first character that no offered name has there."""
        reader = self._reader
        yield from reader.expect('"')
        while True:
            have, quote, _ = reader.text[reader.pos :].partition('"')
            if quote and have in self._tools:
                reader.pos += len(have) + 1
                return have
            if quote or not any(name.startswith(have) for name in self._tools):
                raise MalformedError("no offered name")
            if not (yield from reader.more()):
                raise MalformedError("the text ended inside a name")

    def _arguments(self, call: _Call) -> Step[None]:
        """Arguments that follow the name are written on as they come; others wait for it."""
        if call.name and (yield from self._reader.peek()) == "{":
            call.done = True
            writer = self._parsing.start_call(call.name, call.id)
            yield from LiteralReader(self._reader, writer).value()
            return
        text = yield from self._aside()
        if call.name:
            self._whole_arguments(call, text)
        else:
            call.early = text

    def _whole_arguments(self, call: _Call, text: str) -> None:
        """Arguments that were not written on: an object, its text in a string, null, or a custom tool's input."""
        value = json.loads(text)
        if isinstance(value, str) and self._tools[call.name].kind == "custom":
            text, value = dumped({CUSTOM_INPUT: value}), {}
        elif isinstance(value, str):
            try:
                text, value = value, json.loads(value)
            except ValueError:
                raise MalformedError("arguments are no object") from None
        elif value is None:
            text, value = "{}", {}
        if not isinstance(value, dict):
            raise MalformedError("arguments are no object")
        call.done = True
        self._parsing.start_call(call.name, call.id).put(text)

    def _aside(self) -> Step[str]:
        """A value as JSON text, written nowhere yet."""
        pieces: list[str] = []
        yield from LiteralReader(self._reader, ArgumentWriter(pieces.append)).value()
        return "".join(pieces)


def _nowhere() -> ArgumentWriter:
    return ArgumentWriter(lambda text: None)
