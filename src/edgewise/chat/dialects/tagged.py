"""Calls written as tags: the tool's name in one, each argument in another, values as plain text.

A value ends only where its closing tag is followed by what can follow it: the next argument's tag or the call's end. A value may therefore
hold its own closing tag; the one thing it cannot hold is that tag followed by one of those, which rules make impossible to write.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edgewise.chat.dialects.arguments import dumped
from edgewise.chat.dialects.form import WrittenCall
from edgewise.chat.dialects.parsing import Parsing
from edgewise.chat.dialects.raw_value import RawValue
from edgewise.chat.dialects.reader import MalformedError, Reader, Step
from edgewise.chat.dialects.schema import EXAMPLES, kind_of
from edgewise.chat.dialects.tagged_rules import TagTexts, call_rule
from edgewise.core.chat import ToolDefinition
from edgewise.core.grammar import Rule

NAME = re.compile(r"[^\s<>\[\]{}\"'()|｜]*")
PLACE = re.compile(r"\{(\w+)\}")
FOUND = {"name": r"(?P<name>.+?)", "key": r"(?P<key>.+?)", "type": r"(?P<type>[\w-]*)", "index": r"\d*"}


@dataclass(frozen=True)
class Head:
    """A tag with places in it, read from text: `lead` begins it, `stop` ends it, `pattern` matches what lies between."""

    template: str

    @cached_property
    def lead(self) -> str:
        return PLACE.split(self.template)[0].rstrip("\"' ").lstrip()

    @cached_property
    def stop(self) -> str:
        """Its last fixed word; "" where white space or the next tag ends it."""
        words = PLACE.split(self.template)[-1].split()
        return words[-1].lstrip("\"'") if words else ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Quotes and white space of the template are optional, quotes single or double."""
        inner = self.template.lstrip()[len(self.lead) :].rstrip()
        inner = inner.removesuffix(self.stop) if self.stop else inner
        parts = PLACE.split(inner)
        source = "".join(FOUND[part] if number % 2 else _loose(part) for number, part in enumerate(parts))
        return re.compile(rf"\s*{source}\s*", re.DOTALL)

    def read(self, reader: Reader) -> Step[dict[str, str]]:
        """Read the tag; `lead` has been consumed. Raises MalformedError."""
        if self.stop:
            between, _ = yield from reader.until(self.stop)
        else:
            between = yield from reader.run(NAME)
        match = self.pattern.fullmatch(between)
        if match is None:
            raise MalformedError(f"no {self.template!r}")
        return {key: text.strip() for key, text in match.groupdict().items()}


def _loose(fixed: str) -> str:
    words = re.split(r"(\s+|[\"'])", fixed)
    return "".join(
        r"\s*" if word.isspace() else "[\"']?" if word in "\"'" else re.escape(word) for word in words if word
    )


def string_or_not(value: Any) -> str:
    """The type of a value as "is it a string": true or false."""
    return "true" if isinstance(value, str) else "false"


@dataclass(frozen=True)
class Tagged:
    """`call` holds `{name}` and `{parameters}`, `parameter` holds `{key}` and `{value}`; either may hold `{index}` and `{type}`.

    `type_of` names a value's type where the tag says it. A line break next to `{value}` is part of the tag. `lines_optional`: models of
    the family may leave the line breaks between tags out.
    """

    call: str
    parameter: str
    type_of: Callable[[Any], str] = kind_of
    lines_optional: bool = False

    @cached_property
    def _parts(self) -> tuple[str, str, str, str]:
        """Text before the parameters, after them, before a value, after it."""
        head, tail = self.call.split("{parameters}")
        before, after = self.parameter.split("{value}")
        return head, tail, before, after

    @cached_property
    def _call_head(self) -> Head:
        return Head(self._parts[0])

    @cached_property
    def _key_head(self) -> Head:
        return Head(self._parts[2])

    @cached_property
    def _close(self) -> str:
        return self._parts[3].strip()

    @property
    def _own_lines(self) -> bool:
        return self._parts[2].endswith("\n") and self._parts[3].startswith("\n")

    @property
    def opening(self) -> str:
        return self._call_head.lead

    def start(self, tool: ToolDefinition) -> str:
        return self.opening

    @property
    def literals(self) -> tuple[str, ...]:
        return tuple(part for text in (self.call, self.parameter) for part in PLACE.split(text)[::2])

    # -- writing

    def write(self, call: WrittenCall) -> str:
        parameters = "".join(self._parameter(key, value) for key, value in call.arguments.items())
        head, tail, _, _ = self._parts
        return head.replace("{name}", call.name).replace("{index}", str(call.index + 1)) + parameters + tail

    def _parameter(self, key: str, value: Any) -> str:
        _, _, before, after = self._parts
        head = before.replace("{key}", key).replace("{type}", self.type_of(value))
        return head + (value if isinstance(value, str) else dumped(value)) + after

    # -- rules

    def rule(self, tool: ToolDefinition, end: str) -> Rule:
        head, tail, before, after = self._parts
        before_key, before_value = before.split("{key}")
        stops = self._stops(end.strip())
        return call_rule(
            TagTexts(
                head, tail + end, before_key, before_value, after, stops, self.lines_optional, self.type_of
            ),
            tool,
        )

    def _stops(self, end: str) -> tuple[str, ...]:
        """What a value cannot hold: its closing tag followed by what ends it."""
        return tuple(
            self._close + space + follower for follower in self._followers(end) for space in ("\n", "")
        )

    def _followers(self, end: str) -> tuple[str, ...]:
        tail = self._parts[1].strip()
        return (self._key_head.lead, *([tail] if tail else []), *([end] if end else []))

    # -- reading

    def read(self, parsing: Parsing, end: str) -> Step[None]:
        reader = parsing.reader
        yield from reader.expect(self._call_head.lead)
        found = yield from self._call_head.read(reader)
        out = parsing.start_call(found["name"])
        schema = parsing.schema(found["name"])
        out.begin("{")
        joint = ""
        while not (yield from self._over(reader, end)):
            yield from reader.expect(self._key_head.lead)
            head = yield from self._key_head.read(reader)
            kinds = self._kinds(schema.kinds(head["key"]) if schema else frozenset(), head.get("type", ""))
            out.hold(joint + dumped(head["key"]) + ": ")
            joint = ", "
            value = RawValue(reader, out, self._close, self._followers(end), own_lines=self._own_lines)
            yield from value.read(kinds)
        out.end()

    def _over(self, reader: Reader, end: str) -> Step[bool]:
        """Whether the parameters are over; the call's closing tag is consumed, its form's end is not."""
        yield from reader.skip_space()
        tail = self._parts[1].strip()
        if tail and (yield from reader.take(tail)):
            return True
        return bool(end) and (yield from reader.sees(end))

    def _kinds(self, declared: frozenset[str], said: str) -> frozenset[str]:
        """The types a value may have: the schema's, narrowed by what its tag says where both agree."""
        if not said:
            return declared
        fitting = frozenset(kind for kind, example in EXAMPLES.items() if self.type_of(example) == said)
        narrowed = (declared & fitting) if declared else fitting
        return narrowed or declared
