"""The openings of bare calls as regions of free text: from there on the name is an offered one and the arguments fit its schema.

Triggers are exact text, so the openings that models were seen to write are spelt out. Regions are few, since each holds every schema.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from edgewise.chat.dialects.json_bodies import argument_schema
from edgewise.core.chat import ToolChoice, ToolDefinition
from edgewise.core.grammar import OneOf, Regex, Repeat, Rule, Sequence, Text, Triggered

OBJECTS = ('{"name"', '{ "name"', '{\n"name"', '{\n  "name"', '{\n    "name"')
OTHER_KEYS = ('{"function": "', '{"tool": "', '{\n  "function": "', '{\n  "tool": "')
WRAPPED = (
    '{"type": "function", "function": {"name"',
    '{\n  "type": "function",\n  "function": {\n    "name"',
)
LISTS = ('[{"name"', '[\n  {\n    "name"', '[\n    {\n        "name"')
FENCES = ("```json\n", "```\n")
SPACE = "[ \\n\\t]{0,16}"

COLON = Regex('[ ]?:[ ]?"')
ARGUMENTS = Regex(f'{SPACE},{SPACE}"(arguments|parameters|input)"{SPACE}:{SPACE}')
CLOSING = Regex(SPACE + r"\}")
LIST_END = Regex(SPACE + r"\]")
FENCE_END = Regex(SPACE + "```")
NEXT = SPACE + r"\{" + SPACE + '"name"[ ]?:[ ]?"'
NEXT_IN_LIST = Regex(SPACE + "," + NEXT)
NEXT_IN_FENCE = Regex(",?" + NEXT)


def bare_call_regions(tools: Seq[ToolDefinition], choice: ToolChoice) -> tuple[Triggered, ...]:
    """Regions for the free text of an answer that may call `tools`; none where nothing may be called or something must be."""
    offered = [tool for tool in tools if choice.names is None or tool.name in choice.names]
    if not offered or choice.mode != "auto":
        return ()
    high = None if choice.parallel else 0
    call = Sequence((OneOf(tuple(_head(tool) for tool in offered)), CLOSING))
    more = Repeat(Sequence((NEXT_IN_FENCE, call)), 0, high)
    listed = Sequence((COLON, call, Repeat(Sequence((NEXT_IN_LIST, call)), 0, high), LIST_END))
    return (
        _region(OBJECTS, Sequence((COLON, call))),
        _region(_fenced(OBJECTS), Sequence((COLON, call, more, FENCE_END))),
        _region(OTHER_KEYS, call),
        _region(LISTS, listed),
        _region(_fenced(LISTS), Sequence((listed, FENCE_END))),
        _region(WRAPPED, Sequence((COLON, call, CLOSING))),
    )


def _fenced(starts: Seq[str]) -> tuple[str, ...]:
    return tuple(fence + start for fence in FENCES for start in starts)


def _region(starts: Seq[str], rule: Rule) -> Triggered:
    return Triggered(starts[0], Sequence((Text(starts[0]), rule)), at_start=True, also=tuple(starts[1:]))


def _head(tool: ToolDefinition) -> Rule:
    """A call from its name on, the opening quote written already, up to its closing brace."""
    return Sequence((Text(f'{tool.name}"'), ARGUMENTS, argument_schema(tool)))
