"""Calls written as `call:name{key:value,...}`, strings between two delimiters and unescaped, objects and lists nested."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from edgewise.chat.dialects.arguments import dumped
from edgewise.chat.dialects.form import WrittenCall
from edgewise.chat.dialects.literals import LiteralReader, Syntax
from edgewise.chat.dialects.nested_rules import NestedRules, Notation
from edgewise.chat.dialects.parsing import Parsing
from edgewise.chat.dialects.reader import MalformedError, Step
from edgewise.chat.dialects.rules import sequence
from edgewise.chat.dialects.schema import Schema, ToolSchema
from edgewise.chat.dialects.text_rules import raw_text
from edgewise.core.chat import ToolDefinition
from edgewise.core.grammar import RawText, Regex, Rule, Text

NAME = re.compile(r"[^\s{}]*")
KEY = Regex("[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class Braces:
    """`lead` stands before the name; `delimiter` around strings. Keys are written in the alphabet's order, as the templates do."""

    delimiter: str
    lead: str = "call:"

    @property
    def opening(self) -> str:
        return self.lead

    @property
    def literals(self) -> tuple[str, ...]:
        return (self.delimiter,)

    def start(self, tool: ToolDefinition) -> str:
        return f"{self.lead}{tool.name}{{"

    # -- writing

    def write(self, call: WrittenCall) -> str:
        return f"{self.lead}{call.name}{self._text(call.arguments)}"

    def _text(self, value: Any) -> str:
        match value:
            case str():
                return f"{self.delimiter}{value}{self.delimiter}"
            case dict():
                keys = sorted(value, key=str.lower)
                return "{" + ",".join(f"{key}:{self._text(value[key])}" for key in keys) + "}"
            case list():
                return "[" + ",".join(map(self._text, value)) + "]"
        return dumped(value)

    # -- rules

    def rule(self, tool: ToolDefinition, end: str) -> Rule:
        schema = ToolSchema(tool)
        top: Schema = schema.inlined(schema.root)
        arguments = NestedRules(self._notation, tool, schema).object(top)
        return sequence(Text(f"{self.lead}{tool.name}"), arguments, Text(end))

    @property
    def _notation(self) -> Notation:
        return Notation(
            text=self._text,
            string=sequence(Text(self.delimiter), RawText((self.delimiter,)), Text(self.delimiter)),
            key=lambda key: f"{key}:",
            any_key=sequence(KEY, Text(":")),
            joint=",",
            bound_string=self._bound_string,
            sort=True,
        )

    def _bound_string(self, schema: Schema, path: str, strict: bool) -> Rule:
        inner = raw_text(schema, (self.delimiter,), path, strict=strict)
        return sequence(Text(self.delimiter), inner, Text(self.delimiter))

    # -- reading

    def read(self, parsing: Parsing, end: str) -> Step[None]:
        reader = parsing.reader
        yield from reader.expect(self.lead)
        name = yield from reader.run(NAME)
        if not name or not (yield from reader.sees("{")):
            raise MalformedError("expected a name and its arguments")
        out = parsing.start_call(name)
        schema = parsing.schema(name)
        syntax = Syntax(delimiter=self.delimiter, bare=True)
        yield from LiteralReader(reader, out, syntax).object(0, schema.kinds if schema else None)
