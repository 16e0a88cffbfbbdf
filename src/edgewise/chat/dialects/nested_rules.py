"""A schema laid out in a notation of nested lists and objects that is not JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from edgewise.chat.dialects.rules import NOTHING, listed, one_of, optional, sequence
from edgewise.chat.dialects.schema import (
    Schema,
    ToolSchema,
    alternatives,
    is_open,
    kinds_of,
    resolved,
    text_choices,
)
from edgewise.chat.dialects.text_rules import relaxed
from edgewise.core.chat import ToolDefinition
from edgewise.core.grammar import Json, Repeat, Rule, Text

MAX_DEPTH = 5
FREE_DEPTH = 2


@dataclass(frozen=True, slots=True)
class Notation:
    """How values are written. `text` writes one certain string, `string` is the rule of any; `key` writes a key with what follows it.

    `bound_string`: the rule of a string of a schema (schema, its place, strict), where strings stand as they are. `constants`: rules of
    booleans and null where they are not JSON's. `sort`: keys stand in the alphabet's order.
    """

    text: Callable[[str], str]
    string: Rule
    key: Callable[[str], str]
    any_key: Rule
    joint: str
    bound_string: Callable[[Schema, str, bool], Rule] | None = None
    constants: dict[str, Rule] = field(default_factory=dict)
    sort: bool = False


@dataclass(frozen=True, slots=True)
class NestedRules:
    """The rules of one tool's values. What is nested deeper than `MAX_DEPTH`, or has no schema, is any value."""

    notation: Notation
    tool: ToolDefinition
    schema: ToolSchema

    def value(self, part: Any, depth: int = 0) -> Rule:
        """A value of a schema."""
        part = resolved(part, self.schema.root)
        choices = text_choices(part)
        if choices:
            return one_of([Text(self.notation.text(choice)) for choice in choices])
        kinds = kinds_of(part, self.schema.root)
        if not kinds or depth > MAX_DEPTH:
            return self.anything(FREE_DEPTH)
        several = alternatives(part)
        if several:
            return one_of([self.value(each, depth + 1) for each in several])
        return one_of([self._of_kind(kind, part, depth) for kind in sorted(kinds)])

    def _of_kind(self, kind: str, part: Schema, depth: int) -> Rule:
        """A value of one type, with a note of what its rule lets go."""
        path = f"{self.tool.path}.parameters"
        if kind == "string" and self.notation.bound_string is not None:
            return self.notation.bound_string(part, path, bool(self.tool.strict))
        rule = self._of_bound_kind(kind, part, depth)
        if kind not in ("string", "array", "object"):
            return rule
        return sequence(relaxed(part, kind, path, strict=bool(self.tool.strict)), rule)

    def _of_bound_kind(self, kind: str, part: Schema, depth: int) -> Rule:
        if kind == "string":
            return self.notation.string
        if kind in self.notation.constants:
            return self.notation.constants[kind]
        if kind == "object":
            return self.object(part, depth)
        if kind == "array":
            return self._array(part, depth)
        inner = self.schema.restricted(part, frozenset({kind}))
        return Json(inner, f"{self.tool.path}.parameters", strict=bool(self.tool.strict), compact=True)

    def _array(self, part: Schema, depth: int) -> Rule:
        low, high = part.get("minItems", 0), part.get("maxItems")
        if high == 0:
            return Text("[]")
        item = self.value(part.get("items", True), depth + 1)
        items = Repeat(item, max(low, 1), high, Text(self.notation.joint))
        return sequence(Text("["), items if low else optional(items), Text("]"))

    def object(self, part: Schema, depth: int = 0) -> Rule:
        """An object of a schema with its properties in order."""
        if is_open(part):
            return self._free_object(FREE_DEPTH)
        return sequence(Text("{"), self.entries(part, self.notation.key, depth), Text("}"))

    def entries(self, part: Schema, key: Callable[[str], str], depth: int = 0) -> Rule:
        """An object's properties, each behind its `key`, without what stands around them."""
        properties, required = part.get("properties") or {}, part.get("required") or []
        names = sorted(properties, key=str.lower) if self.notation.sort else list(properties)
        items = [
            (sequence(Text(key(name)), self.value(properties[name], depth + 1)), name in required)
            for name in names
        ]
        return listed(items, self.notation.joint) if items else NOTHING

    def anything(self, depth: int) -> Rule:
        """Any value, nested to a depth."""
        constants = self.notation.constants
        kinds = [kind for kind in ("number", "boolean", "null") if kind not in constants]
        scalars = [self.notation.string, *constants.values(), Json({"type": kinds}, compact=True)]
        if depth == 0:
            return one_of(scalars)
        items = Repeat(self.anything(depth - 1), 0, None, Text(self.notation.joint))
        return one_of([*scalars, sequence(Text("["), items, Text("]")), self._free_object(depth)])

    def _free_object(self, depth: int) -> Rule:
        entry = sequence(self.notation.any_key, self.anything(depth - 1))
        return sequence(Text("{"), Repeat(entry, 0, None, Text(self.notation.joint)), Text("}"))
