"""A tool dialect: one description, from which come parser, grammar, renderer and instructions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from edgewise.chat.dialects.arguments import dumped
from edgewise.chat.dialects.form import MARKER, Form, WrittenCall
from edgewise.chat.dialects.parser import Noise, ToolParser
from edgewise.chat.dialects.rules import one_of, optional, sequence
from edgewise.core.chat import CUSTOM_SCHEMA, ToolCall, ToolChoice, ToolDefinition
from edgewise.core.grammar import FreeText, Rule, Text, Triggered


@dataclass(frozen=True, slots=True)
class ToolDialect:
    """How a family of models writes tool calls. The first of `forms` is how it is written here; all are read.

    `noise` is message framing that is dropped from the text. `content` frames the text before calls. `between` stands between calls of a
    form without a section. `leads` are framing that forced calls may begin with, depending on where the prompt stopped.
    """

    name: str
    forms: tuple[Form, ...]
    aliases: tuple[str, ...] = ()
    noise: tuple[Noise, ...] = ()
    content: str = "{content}"
    between: str = ""
    leads: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts whose control tokens must stay visible in what the parser is given."""
        found: dict[str, None] = {}
        for literal in (*(part for form in self.forms for part in form.literals), *self._noise_texts()):
            found |= dict.fromkeys([literal.strip(), *MARKER.findall(literal)])
        return tuple(text for text in found if text)

    def _noise_texts(self) -> tuple[str, ...]:
        return tuple(text for noise in self.noise for text in (noise.start, noise.end) if text)

    def parser(self, tools: Sequence[ToolDefinition], *, new_id: Callable[[], str]) -> ToolParser:
        """A parser of one answer. Only `tools` can be called; `new_id` makes ids for calls whose dialect has none."""
        return ToolParser(self.forms, self.noise, tools, new_id)

    def free_text(self, tools: Sequence[ToolDefinition], choice: ToolChoice) -> FreeText:
        """Free text in which a call, once begun, must be right (auto), or in which none can begin (none)."""
        offered = chosen(tools, choice)
        if choice.mode == "none" or not offered:
            marked = [form.written_marker or form.marker for form in self.forms if not form.bare]
            return FreeText(banned=tuple(dict.fromkeys(marked)), max_regions=0)
        regions = [form.triggered(offered, parallel=choice.parallel) for form in self._written()]
        return FreeText(_grouped(chain(*regions)), max_regions=None if choice.parallel else 1)

    def _written(self) -> list[Form]:
        return [form for form in self.forms if form.written]

    def forced(self, tools: Sequence[ToolDefinition], choice: ToolChoice) -> Rule:
        """Calls and nothing else: at least one, one if parallel calls are refused or the choice is named."""
        offered = chosen(tools, choice)
        several = choice.parallel and not choice.named
        rules = [
            form.rule(offered, parallel=several, joint=self.between, prelude=True) for form in self._written()
        ]
        return sequence(*(optional(Text(lead)) for lead in self.leads), one_of(rules))

    def render(self, calls: Sequence[ToolCall], content: str = "") -> str:
        """What a model would write: the content, then the calls in the dialect's first form."""
        written = [WrittenCall(call.name, _arguments(call), index) for index, call in enumerate(calls)]
        if not written:
            return content
        before = self.content.replace("{content}", content) if content else ""
        return before + self.forms[0].write(written, joint=self.between)

    def instructions(self, tools: Sequence[ToolDefinition]) -> str:
        """What a model whose template knows no tools must be told to call them."""
        listed = "\n".join(dumped(_described(tool)) for tool in tools)
        example = self.forms[0].write([WrittenCall("NAME", {"PARAMETER": "VALUE"}, 0)], joint="")
        return (
            "You can call tools. Each line between <tools> and </tools> describes one, its parameters as a JSON schema.\n"
            f"<tools>\n{listed}\n</tools>\n"
            "To call a tool, write exactly this, with the tool's name and its arguments in place:\n"
            f"{example}\n"
            "Call a tool only when it helps; otherwise answer in plain text. What a call returns is given to you in the next message."
        )


def _grouped(regions: Iterable[Triggered]) -> tuple[Triggered, ...]:
    """Regions that begin alike as one with a choice of rules."""
    rules: dict[tuple[str, bool], list[Rule]] = {}
    for region in regions:
        rules.setdefault((region.trigger, region.at_start), []).append(region.rule)
    return tuple(Triggered(trigger, one_of(each), at_start) for (trigger, at_start), each in rules.items())


def chosen(tools: Sequence[ToolDefinition], choice: ToolChoice) -> list[ToolDefinition]:
    """The tools that a choice lets a model call."""
    return [tool for tool in tools if choice.names is None or tool.name in choice.names]


def _arguments(call: ToolCall) -> dict[str, object]:
    if isinstance(call.arguments, str):
        value = json.loads(call.arguments or "{}")
        assert isinstance(value, dict), "a call's arguments are an object"
        return value
    return dict(call.arguments or {})


def _described(tool: ToolDefinition) -> dict[str, object]:
    parameters = CUSTOM_SCHEMA if tool.kind == "custom" else tool.parameters
    return {"name": tool.name, "description": tool.description or "", "parameters": parameters or {}}
