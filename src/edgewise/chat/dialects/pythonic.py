"""Calls written as Python calls with keyword arguments: `name(key='text', other=3)`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from edgewise.chat.dialects.arguments import ArgumentWriter, dumped
from edgewise.chat.dialects.form import WrittenCall
from edgewise.chat.dialects.literals import LiteralReader
from edgewise.chat.dialects.nested_rules import NestedRules, Notation
from edgewise.chat.dialects.parsing import Parsing
from edgewise.chat.dialects.reader import MalformedError, Reader, Step
from edgewise.chat.dialects.rules import one_of, sequence
from edgewise.chat.dialects.schema import ToolSchema
from edgewise.core.chat import ToolDefinition
from edgewise.core.grammar import Regex, Repeat, Rule, Text

NAME = re.compile(r"[\w.:/-]*")
KEY = re.compile(r"\w*")
STRING = Regex(
    r"""'(?:[^'\\\x00-\x1f]|\\(?:[\\'"nrt]|x[0-9a-f]{2}))*'|"(?:[^"\\\x00-\x1f]|\\(?:[\\'"nrt]|x[0-9a-f]{2}))*\""""
)
ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
CONSTANTS: dict[str, Rule] = {
    "boolean": one_of([Text("True"), Text("False")]),
    "null": Text("None"),
}


def python_text(value: Any, quote: str) -> str:
    """A value as a Python literal; characters beyond ASCII as they are."""
    match value:
        case str():
            inner = value.translate(ESCAPES).replace(quote, "\\" + quote)
            return quote + "".join(c if c >= " " else f"\\x{ord(c):02x}" for c in inner) + quote
        case dict():
            items = (f"{python_text(key, quote)}: {python_text(each, quote)}" for key, each in value.items())
            return "{" + ", ".join(items) + "}"
        case list():
            return "[" + ", ".join(python_text(each, quote) for each in value) + "]"
        case bool() | None:
            return repr(value)
    return dumped(value)


@dataclass(frozen=True, slots=True)
class Pythonic:
    """`quote` is what strings are written with; either kind is read, and JSON's constants beside Python's."""

    quote: str = "'"
    opening = ""
    literals: tuple[str, ...] = ()

    def start(self, tool: ToolDefinition) -> str:
        return f"{tool.name}("

    def write(self, call: WrittenCall) -> str:
        items = (f"{key}={python_text(value, self.quote)}" for key, value in call.arguments.items())
        return f"{call.name}({', '.join(items)})"

    # -- rules

    def rule(self, tool: ToolDefinition, end: str) -> Rule:
        schema = ToolSchema(tool)
        rules = NestedRules(self._notation, tool, schema)
        given = rules.entries(schema.inlined(schema.root), lambda key: f"{key}=")
        if schema.open_ended:
            extra = sequence(Regex("[A-Za-z_][A-Za-z0-9_]{0,63}"), Text("="), rules.anything(2))
            given = Repeat(extra, 0, None, Text(", "))
        return sequence(Text(f"{tool.name}("), given, Text(")" + end))

    @property
    def _notation(self) -> Notation:
        return Notation(
            text=self._text,
            string=STRING,
            key=lambda key: self._text(key) + ": ",
            any_key=sequence(STRING, Text(": ")),
            joint=", ",
            constants=CONSTANTS,
        )

    def _text(self, value: str) -> str:
        return python_text(value, self.quote)

    # -- reading

    def read(self, parsing: Parsing, end: str) -> Step[None]:
        reader = parsing.reader
        name = yield from reader.run(NAME)
        yield from reader.expect("(")
        if not name:
            raise MalformedError("expected a name")
        out = parsing.start_call(name)
        schema = parsing.schema(name)
        order = list(schema.parameters) if schema else []
        out.begin("{")
        yield from reader.skip_space()
        position, joint = 0, ""
        while not (yield from reader.take(")")):
            key = yield from self._key(reader)
            if key is None:
                key = order[position] if position < len(order) else str(position)
            kinds = schema.kinds(key) if schema else frozenset()
            yield from self._item(reader, out, joint + dumped(key) + ": ", kinds)
            position, joint = position + 1, ", "
        out.end()

    def _item(self, reader: Reader, out: ArgumentWriter, head: str, kinds: frozenset[str]) -> Step[None]:
        out.hold(head)
        yield from LiteralReader(reader, out).value(kinds=kinds)
        yield from reader.skip_space()
        if (yield from reader.take(",")):
            yield from reader.skip_space()
        elif not (yield from reader.sees(")")):
            raise MalformedError("expected a comma")

    def _key(self, reader: Reader) -> Step[str | None]:
        """A keyword and its sign of equality; None, and nothing consumed, before a value without one."""
        key = yield from reader.run(KEY)
        space = yield from reader.skip_space()
        if key and (yield from reader.take("=")):
            yield from reader.skip_space()
            return key
        reader.pos -= len(key) + len(space)
        return None
