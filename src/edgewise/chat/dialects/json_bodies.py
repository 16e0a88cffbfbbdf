"""Calls whose arguments are a JSON object: inside a JSON object with the name, or after a header that names the tool."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from edgewise.chat.dialects.arguments import ArgumentWriter, dumped
from edgewise.chat.dialects.form import WrittenCall
from edgewise.chat.dialects.literals import LiteralReader
from edgewise.chat.dialects.parsing import Parsing
from edgewise.chat.dialects.reader import MalformedError, Reader, Step
from edgewise.chat.dialects.rules import sequence
from edgewise.chat.dialects.schema import custom_schema
from edgewise.core.chat import ToolDefinition
from edgewise.core.grammar import Json, Regex, Rule, Text

NAME_KEYS = ("name", "tool_name")
ARGUMENT_KEYS = ("arguments", "parameters", "args")
NAME = re.compile(r"[\w.:/-]{1,256}")


def argument_schema(tool: ToolDefinition) -> Json:
    """The rule of a tool's arguments as one JSON object."""
    if tool.kind == "custom":
        return Json(custom_schema(tool), path=tool.path)
    schema = tool.parameters if tool.parameters is not None else {"type": "object", "properties": {}}
    return Json(
        {
            **schema,
            "type": "object",
        },  # whatever else its schema may allow: no other value is a call's arguments
        path=f"{tool.path}.parameters",
        strict=bool(tool.strict),
    )


def read_object(reader: Reader, out: ArgumentWriter) -> Step[None]:
    """An arguments object, written on as it comes."""
    if (yield from reader.peek()) != "{":
        raise MalformedError("expected an object of arguments")
    yield from LiteralReader(reader, out).value()


@dataclass(frozen=True, slots=True)
class JsonObject:
    """`{"name": NAME, "arguments": {...}}` under whatever keys; other keys and any order are read. `index_key`: the call's number is written first."""

    name_key: str = "name"
    argument_key: str = "arguments"
    index_key: str = ""
    id_key: str = ""

    opening = "{"
    literals: tuple[str, ...] = ()

    def _head(self, name: str, index: int) -> str:
        number = f'"{self.index_key}": "{index}", ' if self.index_key else ""
        return f'{{{number}"{self.name_key}": {dumped(name)}, "{self.argument_key}": '

    def start(self, tool: ToolDefinition) -> str:
        return f'{{"{self.index_key or self.name_key}": "'

    def write(self, call: WrittenCall) -> str:
        return self._head(call.name, call.index) + dumped(call.arguments) + "}"

    def rule(self, tool: ToolDefinition, end: str) -> Rule:
        head = self._head(tool.name, 0)
        if not self.index_key:
            return sequence(Text(head), argument_schema(tool), Text("}" + end))
        before, after = head.split('"0"', 1)
        return sequence(
            Text(before + '"'), Regex("[0-9]{1,4}"), Text('"' + after), argument_schema(tool), Text("}" + end)
        )

    def read(self, parsing: Parsing, end: str) -> Step[None]:
        call = _ObjectCall(parsing)
        reader = parsing.reader
        yield from reader.expect("{")
        yield from reader.skip_space()
        while not (yield from reader.take("}")):
            yield from call.entry(self.id_key)
            yield from reader.skip_space()
            if (yield from reader.take(",")):
                yield from reader.skip_space()
            elif call.done and end and (yield from reader.sees(end)):
                break
            elif not (yield from reader.sees("}")):
                raise MalformedError("expected the call's end")
        call.close(explicit=bool(end))


class _ObjectCall:
    """A call object being read: its name may come after its arguments."""

    def __init__(self, parsing: Parsing) -> None:
        self.parsing = parsing
        self.name = ""
        self.id = ""
        self.early: str | None = None
        self.done = False

    def entry(self, id_key: str) -> Step[None]:
        """One key and its value."""
        reader = self.parsing.reader
        key = yield from LiteralReader(reader, ArgumentWriter(lambda text: None)).text()
        yield from reader.skip_space()
        yield from reader.expect(":")
        yield from reader.skip_space()
        if key in NAME_KEYS and not self.name:
            self.name = yield from LiteralReader(reader, ArgumentWriter(lambda text: None)).text()
        elif key in ARGUMENT_KEYS and not self.done and self.early is None:
            yield from self._arguments()
        else:
            value = yield from _aside(reader)
            if key == id_key and value.startswith('"'):
                self.id = str(json.loads(value))

    def _arguments(self) -> Step[None]:
        reader = self.parsing.reader
        if (yield from reader.peek()) == "{" and self.name:
            yield from read_object(reader, self.parsing.start_call(self.name, self.id))
            self.done = True
        else:
            self.early = _object_text((yield from _aside(reader)))

    def close(self, *, explicit: bool) -> None:
        """The object is over. Arguments that came before the name go out now; a marked call may lack them."""
        if self.done:
            return
        if not self.name or (self.early is None and not explicit):
            raise MalformedError("no call")
        writer = self.parsing.start_call(self.name, self.id)
        writer.put(self.early if self.early is not None else "{}")


def _aside(reader: Reader) -> Step[str]:
    """A value as JSON text, read without being written anywhere yet."""
    pieces: list[str] = []
    yield from LiteralReader(reader, ArgumentWriter(pieces.append)).value()
    return "".join(pieces)


def _object_text(text: str) -> str:
    """Arguments that are not an object as such: null is none, a string may hold the object's text."""
    value = json.loads(text)
    if isinstance(value, str):
        try:
            text, value = value, json.loads(value)
        except ValueError as error:
            raise MalformedError("arguments are no object") from error
    if value is None:
        return "{}"
    if not isinstance(value, dict):
        raise MalformedError("arguments are no object")
    return text


@dataclass(frozen=True, slots=True)
class KeyedObject:
    """`{NAME: {...}}`."""

    opening = "{"
    literals: tuple[str, ...] = ()

    def start(self, tool: ToolDefinition) -> str:
        return f"{{{dumped(tool.name)}: "

    def write(self, call: WrittenCall) -> str:
        return f"{{{dumped(call.name)}: {dumped(call.arguments)}}}"

    def rule(self, tool: ToolDefinition, end: str) -> Rule:
        return sequence(Text(f"{{{dumped(tool.name)}: "), argument_schema(tool), Text("}" + end))

    def read(self, parsing: Parsing, end: str) -> Step[None]:
        reader = parsing.reader
        yield from reader.expect("{")
        yield from reader.skip_space()
        name = yield from LiteralReader(reader, ArgumentWriter(lambda text: None)).text()
        yield from reader.skip_space()
        yield from reader.expect(":")
        yield from reader.skip_space()
        if (yield from reader.peek()) != "{":
            raise MalformedError("expected an object of arguments")
        yield from read_object(reader, parsing.start_call(name))
        yield from reader.skip_space()
        yield from reader.expect("}")


@dataclass(frozen=True, slots=True)
class NamedJson:
    """A header with the name, then the arguments: `head` holds `{name}` (and `{index}`), `tail` follows the arguments.

    `head_ends`: what a header read may end with, a "{" being the arguments' own. `pattern` finds `name`, and `id` where the dialect has
    ids, in the text before.
    """

    head: str
    head_ends: tuple[str, ...] = ("{",)
    pattern: str = r"\s*(?P<name>[^\s{}\"']{1,256})\s*"
    tail: str = ""
    opening: str = ""

    @property
    def literals(self) -> tuple[str, ...]:
        return (*re.split(r"\{name\}|\{index\}", self.head), self.tail, *self.head_ends)

    def start(self, tool: ToolDefinition) -> str:
        return self.head.partition("{name}")[0] + tool.name

    def write(self, call: WrittenCall) -> str:
        head = self.head.replace("{name}", call.name).replace("{index}", str(call.index))
        return head + dumped(call.arguments) + self.tail

    def rule(self, tool: ToolDefinition, end: str) -> Rule:
        before, index, after = self.head.replace("{name}", tool.name).partition("{index}")
        number = Regex("[0-9]{1,4}") if index else Text("")
        return sequence(Text(before), number, Text(after), argument_schema(tool), Text(self.tail + end))

    def read(self, parsing: Parsing, end: str) -> Step[None]:
        reader = parsing.reader
        header, stop = yield from reader.until(*self.head_ends)
        match = re.fullmatch(self.pattern, header)
        if match is None:
            raise MalformedError("no header of a call")
        if stop == "{":
            reader.pos -= 1
        yield from reader.skip_space()
        if (yield from reader.peek()) != "{":
            raise MalformedError("expected an object of arguments")
        out = parsing.start_call(match["name"], match.groupdict().get("id") or "")
        yield from read_object(reader, out)
        if self.tail.strip():
            yield from reader.skip_space()
            yield from reader.take(self.tail.strip())
