"""Tools and tool_choice of a Messages request.

A tool with a schema is the client's, and a model can call it. One without, whose type names a tool that Anthropic trained its models
on or runs itself (web_search_20250305, bash_20250124, ...), has no schema to show a model: it is left out and noted, so that a
client which always offers one is served all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgewise.core.chat import ToolChoice, ToolDefinition
from edgewise.protocols.fields import Fields
from edgewise.protocols.tools import MAX_TOOLS, read_name


def read_tools(fields: Fields) -> tuple[tuple[ToolDefinition, ...], tuple[str, ...]]:
    """(the tools a model may call, names of those left out). Raises InvalidRequestError."""
    tools: dict[str, ToolDefinition] = {}
    left_out: dict[str, None] = {}
    raw_tools = fields.array("tools") or ()
    if len(raw_tools) > MAX_TOOLS:
        raise fields.fail("tools", f"must hold at most {MAX_TOOLS} tools, got {len(raw_tools)}")
    for i, raw in enumerate(raw_tools):
        tool = Fields.of(raw, f"tools[{i}]")
        kind = tool.string("type") or "custom"
        if kind != "custom" and tool.get("input_schema") is None:
            left_out[f"tools.{kind}"] = None
            continue
        definition = _read_tool(tool)
        if definition.name in tools:
            raise tool.fail("name", "must be unique", definition.name)
        tools[definition.name] = definition
    return tuple(tools.values()), tuple(left_out)


def _read_tool(tool: Fields) -> ToolDefinition:
    name = read_name(tool)
    schema = tool.object("input_schema")
    if schema is None:
        raise tool.fail("input_schema", "is required")
    return ToolDefinition(
        name=name,
        description=tool.string("description"),
        parameters=dict(schema.data),
        strict=tool.boolean("strict") if tool.get("strict") is not None else None,
        local_name=name,
        path=tool.path,
        raw=dict(tool.data),
    )


def read_tool_choice(fields: Fields, tools: Sequence[ToolDefinition]) -> ToolChoice:
    """Raises InvalidRequestError for a choice that cannot be kept."""
    choice = fields.object("tool_choice")
    if choice is None:
        return ToolChoice()
    parallel = not choice.boolean("disable_parallel_tool_use")
    match choice.string("type"):
        case "auto":
            return ToolChoice("auto", parallel=parallel)
        case "none":
            return ToolChoice("none", parallel=parallel)
        case "any":
            if not tools:
                raise fields.fail("tool_choice", "needs a tool that can be called here; none is offered")
            return ToolChoice("required", parallel=parallel)
        case "tool":
            name = choice.string("name")
            if not any(tool.name == name for tool in tools):
                raise choice.fail("name", "must be the name of a tool that can be called here", name)
            return ToolChoice("required", (str(name),), named=True, parallel=parallel)
        case kind:
            raise choice.fail("type", "must be auto, any, tool or none", kind)
