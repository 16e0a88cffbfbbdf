"""The schema of a tool laid out as tags: what a tagged call may look like.

A value of plain text may hold its own closing tag, so what ends it is that tag together with what follows, written as one text. A rule
for a parameter therefore comes in two kinds: followed by the next parameter's tag, or by the end of the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgewise.chat.dialects.rules import NOTHING, one_of, optional, sequence
from edgewise.chat.dialects.schema import EXAMPLES, Parameter, ToolSchema, text_choices
from edgewise.chat.dialects.text_rules import raw_text, relaxed
from edgewise.core.chat import ToolDefinition
from edgewise.core.grammar import Json, RawText, Regex, Repeat, Rule, Text

KEY = Regex("[A-Za-z0-9_.-]{1,64}")
NUMBER = Regex("[0-9]{1,4}")


@dataclass(frozen=True, slots=True)
class TagTexts:
    """The fixed texts of a tagged call. `stops`: what no value may hold. `loose`: line breaks between tags may be left out."""

    head: str  # up to the parameters; may hold {name}, {index}
    tail: str  # after the parameters, to the end of the call
    before_key: str
    before_value: str  # from the key to the value; may hold {type}
    after_value: str
    stops: tuple[str, ...]
    loose: bool
    type_of: Callable[[Any], str]

    def fixed(self, text: str) -> Rule:
        """A fixed text as a rule."""
        if not self.loose:
            return Text(text)
        parts = [optional(Text(part)) if part == "\n" else Text(part) for part in re.split("(\n)", text)]
        return sequence(*parts)


def call_rule(texts: TagTexts, tool: ToolDefinition) -> Rule:
    """A call of `tool`, its parameters in the schema's order, those not required perhaps missing."""
    schema = ToolSchema(tool)
    before, number, after = texts.head.replace("{name}", tool.name).partition("{index}")
    head = sequence(texts.fixed(before), NUMBER if number else NOTHING, texts.fixed(after))
    parameters = list(schema.parameters.values())
    if schema.open_ended:
        given = _open_ended(texts)
    elif parameters:
        given = _from([(_Value(texts, tool, schema, each), each.required) for each in parameters])
    else:
        return sequence(head, texts.fixed(texts.tail))
    given = sequence(texts.fixed(texts.before_key), given)
    if any(parameter.required for parameter in parameters):
        return sequence(head, given)
    return sequence(head, one_of([given, texts.fixed(texts.tail)]))


def _from(values: Sequence[tuple[_Value, bool]]) -> Rule:
    """One parameter or more of `values`, up to the end of the call; the first tag is written up to its key.

    The end may come in the first half of them or in the second: split so, rules stay small and flat for any number.
    """
    if len(values) == 1:
        return values[0][0].last()
    half = len(values) // 2
    first, rest = values[:half], values[half:]
    passed = [value.followed() if required else optional(value.followed()) for value, required in first]
    later = sequence(*passed, _from(rest))
    return later if any(required for _, required in rest) else one_of([_from(first), later])


def _open_ended(texts: TagTexts) -> Rule:
    """Parameters of any name, as text."""
    kind = Text(texts.type_of(""))
    before, place, after = texts.before_value.partition("{type}")
    head = sequence(
        KEY, texts.fixed(before), kind if place else NOTHING, texts.fixed(after), RawText(texts.stops)
    )
    followed = sequence(head, texts.fixed(texts.after_value + texts.before_key))
    return sequence(Repeat(followed), head, texts.fixed(texts.after_value + texts.tail))


@dataclass(frozen=True, slots=True)
class _Value:
    """One parameter from its key on."""

    texts: TagTexts
    tool: ToolDefinition
    schema: ToolSchema
    parameter: Parameter

    def followed(self) -> Rule:
        """Up to the next parameter's key."""
        return self._up_to(self.texts.after_value + self.texts.before_key)

    def last(self) -> Rule:
        """Up to the end of the call."""
        return self._up_to(self.texts.after_value + self.texts.tail)

    def _up_to(self, end: str) -> Rule:
        """The value and `end`, which belongs to each way to write the value: it is what raw text ends with."""
        before, place, after = self.texts.before_value.partition("{type}")
        forms = [
            sequence(Text(said) if place else NOTHING, self.texts.fixed(after), value, self.texts.fixed(end))
            for said, value in self._typed_values(tell_apart=bool(place))
        ]
        return sequence(Text(self.parameter.name), self.texts.fixed(before), one_of(forms))

    def _typed_values(self, *, tell_apart: bool) -> list[tuple[str, Rule]]:
        """What a tag may say of its value's type, with the value. Raw text stands for any type where tags do not tell them apart."""
        kinds, inner = self.parameter.kinds, self.schema.standalone(self.parameter.schema)
        said_text = self.texts.type_of("")
        choices = text_choices(inner)
        if choices and not any(stop in choice for choice in choices for stop in self.texts.stops):
            return [(said_text, one_of([Text(choice) for choice in choices]))]
        path = f"{self.tool.path}.parameters.properties.{self.parameter.name}"
        # Text that may be meant as another type is no string of the schema then.
        strict = bool(self.tool.strict)
        if self.parameter.is_text:
            text = raw_text(inner, self.texts.stops, path, strict=strict)
        else:
            text = sequence(relaxed(inner, "string", path, strict=strict), RawText(self.texts.stops))
        raw: list[tuple[str, Rule]] = [(said_text, text)] if not kinds or "string" in kinds else []
        rest = kinds - {"string"}
        if not rest or (raw and not tell_apart):
            return raw
        schema = self.schema.restricted(self.parameter.schema, rest) if raw else inner
        value = Json(schema, path=path, strict=strict)
        whole = {"integer"} if "number" in rest else set()
        said = {self.texts.type_of(EXAMPLES[kind]) for kind in (rest | whole) & EXAMPLES.keys()}
        return [*raw, *((each, value) for each in sorted(said))]
