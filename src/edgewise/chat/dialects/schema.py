"""What a tool's schema says about one parameter, for dialects that write values without JSON's quotes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from edgewise.chat.custom_formats import input_pattern, unbound
from edgewise.chat.dialects.arguments import dumped
from edgewise.core.chat import CUSTOM_INPUT, CUSTOM_SCHEMA, ToolDefinition

Schema = dict[str, Any]

EXAMPLES: dict[str, Any] = {
    "null": None,
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "object": {},
    "array": [],
    "string": "",
}
"""A value of each JSON type."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One declared parameter. `kinds` are the JSON types its schema allows, empty when it does not say."""

    name: str
    schema: Schema | bool
    kinds: frozenset[str]
    required: bool

    @property
    def is_text(self) -> bool:
        """Only ever a string: its text is sent on as it comes."""
        return self.kinds == {"string"}


class ToolSchema:
    """A tool's parameters, references resolved."""

    def __init__(self, tool: ToolDefinition) -> None:
        root = custom_schema(tool) if tool.kind == "custom" else tool.parameters
        self.root: Schema = root if isinstance(root, dict) else {}
        top = resolved(self.root, self.root)
        top = top if isinstance(top, dict) else {}
        properties = top.get("properties")
        required = top.get("required")
        names = required if isinstance(required, list) else []
        self.parameters = {
            name: Parameter(name, schema, kinds_of(schema, self.root), name in names)
            for name, schema in (properties.items() if isinstance(properties, dict) else ())
            if isinstance(schema, (dict, bool))
        }
        self.open_ended = is_open(top)

    def kinds(self, name: str) -> frozenset[str]:
        parameter = self.parameters.get(name)
        return parameter.kinds if parameter else frozenset()

    def standalone(self, schema: Schema | bool) -> Schema | bool:
        """A schema from inside the tool's, able to stand alone: the definitions it may refer to go with it."""
        if not isinstance(schema, dict):
            return schema
        schema = self.inlined(schema)
        shared: Schema = {key: self.root[key] for key in ("$defs", "definitions") if key in self.root}
        return {**shared, **schema} if '"$ref"' in json.dumps(schema) else schema

    def restricted(self, schema: Any, kinds: frozenset[str]) -> Schema | bool:
        """What a schema allows of `kinds` alone."""
        schema = self.standalone(schema)
        if not isinstance(schema, dict):
            return {"type": sorted(kinds)}
        several = alternatives(schema)
        if several:
            fitting = [each for each in several if kinds_of(each, self.root) <= kinds]
            rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
            return {**rest, "anyOf": fitting} if fitting else {"type": sorted(kinds)}
        return {**schema, "type": sorted(kinds) if len(kinds) > 1 else min(kinds)}

    def inlined(self, schema: Schema) -> Schema:
        """The schema a bare reference leads to."""
        found = resolved(schema, self.root)
        return found if isinstance(found, dict) else schema


def resolved(schema: Any, root: Schema) -> Any:
    """What a schema's `$ref` (into the same document) leads to; the schema itself when there is none or it leads nowhere."""
    for _ in range(16):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            return schema
        target: Any = root
        for part in schema["$ref"].lstrip("#").strip("/").split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            target = target.get(part) if isinstance(target, dict) else None
        if target is None:
            return schema
        schema = target
    return schema


def custom_schema(tool: ToolDefinition) -> Schema:
    """The schema of a custom tool's one argument, bound by its format as far as an expression says it."""
    if unbound(tool.custom_format) or not (pattern := input_pattern(tool.custom_format)):
        return CUSTOM_SCHEMA
    return {**CUSTOM_SCHEMA, "properties": {CUSTOM_INPUT: {"type": "string", "pattern": pattern}}}


def is_open(schema: Any) -> bool:
    """Whether an object's schema leaves its keys open: it names none, nor forbids others."""
    if not isinstance(schema, dict) or not schema or "properties" in schema:
        return False
    return schema.get("additionalProperties", True) is not False


def alternatives(schema: Any) -> list[Any]:
    """The schemas an anyOf or oneOf chooses between; empty when it has none."""
    if not isinstance(schema, dict):
        return []
    found = schema.get("anyOf") or schema.get("oneOf")
    return found if isinstance(found, list) else []


def kinds_of(schema: Any, root: Schema, depth: int = 0) -> frozenset[str]:
    """The JSON types a schema allows, as far as it says; empty when it does not."""
    schema = resolved(schema, root)
    if not isinstance(schema, dict) or depth > 8:
        return frozenset()
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset({declared}) | ({"null"} if schema.get("nullable") is True else frozenset())
    if isinstance(declared, list):
        return frozenset(kind for kind in declared if isinstance(kind, str))
    for values in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
        if isinstance(values, list) and values:
            return frozenset(kind_of(value) for value in values)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list):
            parts = [kinds_of(part, root, depth + 1) for part in schema[key]]
            if key == "allOf":
                return next((part for part in parts if part), frozenset())
            return frozenset().union(*parts) if all(parts) else frozenset()
    if "properties" in schema:
        return frozenset({"object"})
    return frozenset({"array"}) if "items" in schema else frozenset()


def kind_of(value: Any) -> str:
    """The JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case dict():
            return "object"
    return "array"


def typed(text: str, kinds: frozenset[str]) -> str:
    """A value written as plain text, as JSON text of a type that `kinds` allows.

    The most specific type that fits wins, string last; with no kinds, JSON if it parses. Text that fits none is a string: it is kept
    rather than guessed at.
    """
    found = _parsed(text.strip())
    if found is not None and (not kinds or _fits(found[1], kinds)):
        return found[0]
    return dumped(text)


def _parsed(text: str) -> tuple[str, Any] | None:
    """(JSON text, value) of text that is JSON, or Python's spelling of a constant."""
    text = {"True": "true", "False": "false", "None": "null"}.get(text, text)
    try:
        return text, json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _fits(value: Any, kinds: frozenset[str]) -> bool:
    kind = kind_of(value)
    if kind == "string":
        return "string" not in kinds  # a quoted string where a string is expected keeps its quotes
    return (
        kind in kinds
        or (kind == "integer" and "number" in kinds)
        or (kind == "number" and _whole(value, kinds))
    )


def _whole(value: float, kinds: frozenset[str]) -> bool:
    return "integer" in kinds and value.is_integer()


def may_be_constant(text: str, kinds: frozenset[str]) -> bool:
    """Whether text, with more to come, may still turn out to be a null or a boolean that `kinds` allow."""
    spelled: tuple[str, ...] = ("null", "None") if "null" in kinds else ()
    spelled += ("true", "false", "True", "False") if "boolean" in kinds else ()
    start = text.strip()
    return any(word.startswith(start) for word in spelled)


def text_choices(schema: Any) -> tuple[str, ...]:
    """The texts of an enum or const of strings alone; empty for any other schema."""
    if not isinstance(schema, dict):
        return ()
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return tuple(values) if values and all(isinstance(value, str) for value in values) else ()
