"""The openings of bare calls as regions of free text: from there on the name is an offered one and the arguments fit its schema."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from edgewise.chat.dialects.json_bodies import argument_schema
from edgewise.core.chat import ToolChoice, ToolDefinition
from edgewise.core.grammar import OneOf, Regex, Repeat, Rule, Sequence, Text, Triggered

# What models were seen to open with. White space varies, and a trigger is exact text.
OBJECTS = (
    *('{"name": "', '{"name":"', '{ "name": "', '{\n"name": "', '{\n  "name": "', '{\n    "name": "'),
    *('{"function": "', '{\n  "function": "', '{"tool": "', '{\n  "tool": "'),
)
WRAPPED = '{"type": "function", "function": {"name": "'
LISTS = ('[{"name": "', '[{"name":"', '[\n  {\n    "name": "', '[\n    {\n        "name": "')
FENCES = ("```json\n", "```\n")

WHITE = r"[ \n\t]{0,24}"
ARGUMENTS = Regex(rf'{WHITE},{WHITE}"(arguments|parameters|input)"{WHITE}:{WHITE}')
CLOSING = Regex(WHITE + r"\}")
ANOTHER = WHITE + r"\{" + WHITE + r'"name"[ ]?:[ ]?"'
NEXT_IN_LIST = Regex(WHITE + "," + ANOTHER)
NEXT_IN_FENCE = Regex(r",?" + ANOTHER)
LIST_END = Regex(WHITE + r"\]")
FENCE_END = Regex(WHITE + "```")


def bare_call_regions(tools: Seq[ToolDefinition], choice: ToolChoice) -> tuple[Triggered, ...]:
    """Regions for the free text of an answer that may call `tools`; none where nothing may be called or something must be."""
    offered = [tool for tool in tools if choice.names is None or tool.name in choice.names]
    if not offered or choice.mode != "auto":
        return ()
    bodies = OneOf(tuple(_body(tool) for tool in offered))
    high = None if choice.parallel else 0
    listed = Sequence((bodies, Repeat(Sequence((NEXT_IN_LIST, bodies)), 0, high), LIST_END))
    block = Sequence((bodies, Repeat(Sequence((NEXT_IN_FENCE, bodies)), 0, high)))
    plain = [(opening, bodies) for opening in OBJECTS] + [(WRAPPED, Sequence((bodies, CLOSING)))]
    regions: list[tuple[str, Rule]] = [*plain, *((opening, listed) for opening in LISTS)]
    for fence in FENCES:
        fenced = [(opening, block if rule is bodies else rule) for opening, rule in plain]
        fenced += [(opening, listed) for opening in LISTS]
        regions += [(fence + opening, Sequence((rule, FENCE_END))) for opening, rule in fenced]
    return tuple(Triggered(start, Sequence((Text(start), rule)), at_start=True) for start, rule in regions)


def _body(tool: ToolDefinition) -> Rule:
    """A call from its name on, the opening quote written already, to its closing brace."""
    return Sequence((Text(f'{tool.name}"'), ARGUMENTS, argument_schema(tool), CLOSING))
