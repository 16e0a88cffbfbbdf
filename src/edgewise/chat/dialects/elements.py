"""Calls whose arguments are elements named after them, nested for objects and lists, every tag behind a mark of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from edgewise.chat.dialects.arguments import ArgumentWriter, dumped
from edgewise.chat.dialects.form import WrittenCall
from edgewise.chat.dialects.parsing import Parsing
from edgewise.chat.dialects.raw_value import RawValue
from edgewise.chat.dialects.reader import MalformedError, Reader, Step
from edgewise.chat.dialects.rules import one_of, optional, sequence
from edgewise.chat.dialects.schema import (
    Schema,
    ToolSchema,
    alternatives,
    is_open,
    kinds_of,
    resolved,
    text_choices,
)
from edgewise.chat.dialects.text_rules import raw_text, relaxed
from edgewise.core.chat import ToolDefinition
from edgewise.core.grammar import Json, RawText, Repeat, Rule, Text

MAX_DEPTH = 16
MAX_RULE_DEPTH = 5
ITEM = "item"
NESTED = frozenset({"object", "array"})


@dataclass(frozen=True, slots=True)
class Elements:
    """`mark` stands before every tag. A list is a run of `<item>` elements; a null is left out, as the template leaves it out.
    An object of any keys is written as JSON: rules cannot tie a closing tag to its opening one."""

    mark: str

    @property
    def opening(self) -> str:
        return f"{self.mark}<invoke name="

    @property
    def literals(self) -> tuple[str, ...]:
        return (self.mark,)

    def start(self, tool: ToolDefinition) -> str:
        return f'{self.opening}"{tool.name}">'

    def _element(self, key: str, inner: str) -> str:
        return f"{self.mark}<{key}>{inner}{self.mark}</{key}>"

    # -- writing

    def write(self, call: WrittenCall) -> str:
        return f'{self.opening}"{call.name}">{self._text(call.arguments)}{self.mark}</invoke>'

    def _text(self, value: Any) -> str:
        match value:
            case dict():
                return "".join(self._element(k, self._text(v)) for k, v in value.items() if v is not None)
            case list():
                return "".join(self._element(ITEM, self._text(each)) for each in value)
            case str():
                return value
        return dumped(value)

    # -- rules

    def rule(self, tool: ToolDefinition, end: str) -> Rule:
        schema = ToolSchema(tool)
        inner = self._properties(schema.inlined(schema.root), schema, tool, 0)
        return sequence(Text(self.start(tool)), inner, Text(f"{self.mark}</invoke>{end}"))

    def _properties(self, part: Schema, schema: ToolSchema, tool: ToolDefinition, depth: int) -> Rule:
        properties, required = part.get("properties") or {}, part.get("required") or []
        parts = []
        for key, value in properties.items():
            rule = self._wrapped(key, self._value_rule(value, schema, tool, depth + 1))
            parts.append(rule if key in required else optional(rule))
        return sequence(*parts)

    def _wrapped(self, key: str, value: Rule) -> Rule:
        return sequence(Text(f"{self.mark}<{key}>"), value, Text(f"{self.mark}</{key}>"))

    def _value_rule(self, part: Any, schema: ToolSchema, tool: ToolDefinition, depth: int) -> Rule:
        part = resolved(part, schema.root)
        choices = text_choices(part)
        if choices:
            return one_of([Text(choice) for choice in choices])
        kinds = kinds_of(part, schema.root)
        path, strict = f"{tool.path}.parameters", bool(tool.strict)
        if kinds == {"string"}:
            return raw_text(part, (self.mark,), path, strict=strict)
        if not kinds or "string" in kinds or depth > MAX_RULE_DEPTH:
            return sequence(relaxed(part, "string", path, strict=strict), RawText((self.mark,)))
        several = alternatives(part)
        if several:
            return one_of([self._value_rule(each, schema, tool, depth + 1) for each in several])
        return one_of([self._kind_rule(kind, part, schema, tool, depth) for kind in sorted(kinds)])

    def _kind_rule(
        self, kind: str, part: Schema, schema: ToolSchema, tool: ToolDefinition, depth: int
    ) -> Rule:
        if kind == "object" and not is_open(part):
            return self._properties(part, schema, tool, depth)
        if kind == "array":
            item = self._wrapped(ITEM, self._value_rule(part.get("items", True), schema, tool, depth + 1))
            return Repeat(item, part.get("minItems", 0), part.get("maxItems"))
        rest = schema.restricted(part, frozenset({kind}))
        return Json(rest, f"{tool.path}.parameters", strict=bool(tool.strict))

    # -- reading

    def read(self, parsing: Parsing, end: str) -> Step[None]:
        reader = parsing.reader
        yield from reader.expect(self.opening)
        head, _ = yield from reader.until(">")
        name = head.strip().strip("\"'")
        out = parsing.start_call(name)
        schema = parsing.schema(name)
        root: Schema = schema.root if schema else {}
        yield from _ElementReader(self.mark, reader, out, root).object("invoke", root, 0)


class _ElementReader:
    """Reads the inside of elements as JSON, typed by their schemas."""

    def __init__(self, mark: str, reader: Reader, out: ArgumentWriter, root: Schema) -> None:
        self.mark = mark
        self.reader = reader
        self.out = out
        self.root = root

    def object(self, tag: str, schema: Any, depth: int) -> Step[None]:
        """Elements named after keys, up to and with the closing tag of `tag`."""
        self.out.begin("{")
        joint = ""
        while (key := (yield from self._next(tag))) is not None:
            self.out.hold(joint + dumped(key) + ": ")
            yield from self._value(key, self._property(schema, key), depth + 1)
            joint = ", "
        self.out.end()

    def array(self, tag: str, schema: Any, depth: int) -> Step[None]:
        """Elements that are items, up to and with the closing tag of `tag`."""
        schema = resolved(schema, self.root)
        items = schema.get("items", True) if isinstance(schema, dict) else True
        self.out.begin("[")
        joint = ""
        while (key := (yield from self._next(tag))) is not None:
            self.out.hold(joint)
            yield from self._value(key, items, depth + 1)
            joint = ", "
        self.out.end()

    def _property(self, schema: Any, key: str) -> Any:
        schema = resolved(schema, self.root)
        found = schema.get("properties") if isinstance(schema, dict) else None
        return found.get(key, True) if isinstance(found, dict) else True

    def _next(self, tag: str) -> Step[str | None]:
        """The key of the next element, its opening tag consumed; None when `tag` closes."""
        yield from self.reader.skip_space()
        if (yield from self.reader.take(f"{self.mark}</{tag}>")):
            return None
        yield from self.reader.expect(f"{self.mark}<")
        key, _ = yield from self.reader.until(">", limit=256)
        if not re.fullmatch(r"[^\s/<>]+", key):
            raise MalformedError("expected an element")
        return key

    def _value(self, tag: str, schema: Any, depth: int) -> Step[None]:
        if depth > MAX_DEPTH:
            raise MalformedError(f"nested deeper than {MAX_DEPTH}")
        kinds = kinds_of(schema, self.root)
        nested = kinds & NESTED if kinds else NESTED
        if nested and (yield from self._holds_elements(tag, empty=bool(kinds) and kinds <= NESTED)):
            yield from self._nested(tag, schema, nested, depth)
            return
        value = RawValue(self.reader, self.out, f"{self.mark}</{tag}>", (f"{self.mark}<",), own_lines=False)
        yield from value.read(kinds)

    def _holds_elements(self, tag: str, *, empty: bool) -> Step[bool]:
        """Whether elements come; `empty`: or none, where only a list or an object can stand. Else JSON or text stands here."""
        if not (yield from self.reader.sees(f"{self.mark}<")):
            return False
        return empty or not (yield from self.reader.sees(f"{self.mark}</{tag}>"))

    def _nested(self, tag: str, schema: Any, kinds: frozenset[str], depth: int) -> Step[None]:
        is_list = kinds == {"array"} or (
            "array" in kinds and (yield from self.reader.sees(f"{self.mark}<{ITEM}>"))
        )
        yield from (self.array if is_list else self.object)(tag, self._branch(schema, is_list), depth)

    def _branch(self, schema: Any, is_list: bool) -> Any:
        """Of a schema with alternatives, the one for a list or an object."""
        schema = resolved(schema, self.root)
        wanted = "array" if is_list else "object"
        for each in alternatives(schema):
            if wanted in kinds_of(each, self.root):
                return each
        return schema
