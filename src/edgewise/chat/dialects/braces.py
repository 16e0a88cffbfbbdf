"""Calls written as `call:name{key:value,...}`, strings between two delimiters and unescaped, objects and lists nested."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from edgewise.chat.dialects.arguments import dumped
from edgewise.chat.dialects.form import WrittenCall
from edgewise.chat.dialects.literals import LiteralReader, Syntax
from edgewise.chat.dialects.parsing import Parsing
from edgewise.chat.dialects.reader import MalformedError, Step
from edgewise.chat.dialects.rules import listed, one_of, optional, sequence
from edgewise.chat.dialects.schema import Schema, ToolSchema, alternatives, kinds_of, resolved, text_choices
from edgewise.core.chat import ToolDefinition
from edgewise.core.grammar import Json, RawText, Regex, Repeat, Rule, Text

NAME = re.compile(r"[^\s{}]*")
MAX_DEPTH = 5
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
        top: Schema = {"type": "object", **schema.inlined(schema.root)}
        return sequence(Text(f"{self.lead}{tool.name}"), self._value_rule(top, schema, tool, 0))

    def _value_rule(self, part: Any, schema: ToolSchema, tool: ToolDefinition, depth: int) -> Rule:
        part = resolved(part, schema.root)
        choices = text_choices(part)
        if choices:
            return one_of([Text(self._text(choice)) for choice in choices])
        kinds = kinds_of(part, schema.root)
        if not kinds or depth > MAX_DEPTH:
            return self._any_value(2)
        several = alternatives(part)
        if several:
            return one_of([self._value_rule(each, schema, tool, depth + 1) for each in several])
        rules = [self._kind_rule(kind, part, schema, tool, depth) for kind in sorted(kinds)]
        return one_of(rules)

    def _kind_rule(
        self, kind: str, part: Schema, schema: ToolSchema, tool: ToolDefinition, depth: int
    ) -> Rule:
        if kind == "string":
            return self._string()
        if kind == "object":
            return self._object(part, schema, tool, depth)
        if kind == "array":
            low, high = part.get("minItems", 0), part.get("maxItems")
            item = self._value_rule(part.get("items", True), schema, tool, depth + 1)
            items = Repeat(item, max(low, 1), high, Text(",")) if high != 0 else Text("")
            return sequence(Text("["), items if low else optional(items), Text("]"))
        rest = schema.restricted(part, frozenset({kind}))
        return Json(rest, f"{tool.path}.parameters", strict=bool(tool.strict), compact=True)

    def _object(self, part: Schema, schema: ToolSchema, tool: ToolDefinition, depth: int) -> Rule:
        properties = part.get("properties") or {}
        if not properties and part.get("additionalProperties", True) is not False:
            return self._free_object(2)
        required = part.get("required") or []
        items = [
            (
                sequence(Text(f"{key}:"), self._value_rule(properties[key], schema, tool, depth + 1)),
                key in required,
            )
            for key in sorted(properties, key=str.lower)
        ]
        return sequence(Text("{"), listed(items, ",") if items else Text(""), Text("}"))

    def _string(self) -> Rule:
        stops = tuple(self.delimiter + follower for follower in ",}]")
        return sequence(Text(self.delimiter), RawText(stops), Text(self.delimiter))

    def _any_value(self, depth: int) -> Rule:
        scalars = [self._string(), Json({"type": ["number", "boolean", "null"]}, compact=True)]
        if depth == 0:
            return one_of(scalars)
        items = Repeat(self._any_value(depth - 1), 0, None, Text(","))
        return one_of([*scalars, sequence(Text("["), items, Text("]")), self._free_object(depth)])

    def _free_object(self, depth: int) -> Rule:
        entry = sequence(KEY, Text(":"), self._any_value(depth - 1))
        return sequence(Text("{"), Repeat(entry, 0, None, Text(",")), Text("}"))

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
