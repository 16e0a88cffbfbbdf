"""Tools, the choice among them, and the older `functions`, of a chat request.

A schema reaches the model word for word: type arrays, `const`, `anyOf` and boolean sub-schemas are legal, and nothing is trimmed. What is
refused cannot be called at all: no name, a name twice, parameters that are no object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from edgewise.chat.lark_patterns import lark_fault
from edgewise.core.chat import CUSTOM_SCHEMA, ToolChoice, ToolDefinition
from edgewise.protocols.fields import Fields, invalid

MAX_TOOLS = 1024
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_NAME_RULE = "must be 1 to 128 letters, digits or any of _ . : / -"
_KINDS = ("function", "custom")
_MODES: dict[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "any": "required",  # Mistral's word
}


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """What a request offers and asks for. `legacy`: it came as `functions`, and calls go back as `function_call`."""

    tools: tuple[ToolDefinition, ...]
    choice: ToolChoice
    legacy: bool = False


def read_tools(fields: Fields) -> ToolRequest:
    """`tools`, `tool_choice` and `parallel_tool_calls`, or `functions` and `function_call`. Raises InvalidRequestError."""
    tools = _read_list(fields, "tools", _read_tool)
    functions = _read_list(fields, "functions", _read_function)
    if tools and functions:
        raise fields.fail("functions", "and tools are two names of one thing; give only tools")
    parallel = fields.boolean("parallel_tool_calls", True)
    chosen, legacy = fields.get("tool_choice"), fields.get("function_call")
    if legacy is not None and chosen is not None:
        raise fields.fail(
            "function_call", "and tool_choice are two names of one thing; give only tool_choice"
        )
    if functions or legacy is not None:
        key = "tool_choice" if chosen is not None else "function_call"
        choice = _read_choice(fields, key, functions or tools, parallel=False)
        return ToolRequest(functions or tools, choice, legacy=bool(functions))
    return ToolRequest(tools, _read_choice(fields, "tool_choice", tools, parallel=parallel))


def _read_list(
    fields: Fields, key: str, read: Callable[[Fields], ToolDefinition]
) -> tuple[ToolDefinition, ...]:
    raw_tools = fields.array(key) or []
    if len(raw_tools) > MAX_TOOLS:
        raise fields.fail(key, f"must hold at most {MAX_TOOLS} tools, got {len(raw_tools)}")
    tools: dict[str, ToolDefinition] = {}
    for i, raw in enumerate(raw_tools):
        tool = read(Fields.of(raw, fields.name(f"{key}[{i}]")))
        if (first := tools.setdefault(tool.name, tool)) is not tool:
            raise invalid(f"{tool.path}.name", f"is the name of {first.path} too", tool.name)
    return tuple(tools.values())


def _read_tool(tool: Fields) -> ToolDefinition:
    kind = tool.require("type")
    if kind not in _KINDS:
        raise tool.fail("type", "must be function or custom", kind)
    inner = Fields.of(tool.require(kind), tool.name(kind))
    return _read_custom(inner, tool) if kind == "custom" else _read_function(inner, tool)


def _read_function(function: Fields, outer: Fields | None = None) -> ToolDefinition:
    name = read_name(function)
    parameters = function.object("parameters")
    if parameters is not None:
        _check_object_schema(parameters)
    return ToolDefinition(
        name=name,
        description=function.string("description"),
        parameters=None if parameters is None else dict(parameters.data),
        strict=function.boolean("strict") if function.get("strict") is not None else None,
        local_name=name,
        path=function.path,
        raw=dict((outer or function).data),
    )


def _check_object_schema(schema: Fields) -> None:
    """Arguments are an object: a schema may leave its type out or list several, but object has to be among them."""
    kind = schema.data.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise schema.fail("type", "must be object", kind)
    properties = schema.data.get("properties")
    if properties is not None and not isinstance(properties, dict):
        raise schema.fail("properties", "must be a JSON object", properties)


def _read_custom(custom: Fields, outer: Fields) -> ToolDefinition:
    name = read_name(custom)
    custom_format = read_custom_format(custom)
    return ToolDefinition(
        name=name,
        description=described(custom.string("description"), custom_format),
        parameters=CUSTOM_SCHEMA,
        kind="custom",
        local_name=name,
        custom_format=custom_format,
        path=custom.path,
        raw=dict(outer.data),
    )


def read_name(fields: Fields) -> str:
    """The name of a tool as every dialect can write it."""
    fields.require("name")
    name = fields.string("name") or ""
    if not _NAME.fullmatch(name):
        raise fields.fail("name", _NAME_RULE, name)
    return name


def read_custom_format(tool: Fields) -> dict[str, Any] | None:
    """The grammar a freeform tool's input has to match; None for plain text. Raises InvalidRequestError for one that is none."""
    given = tool.object("format")
    if given is None or given.string("type") in (None, "text"):
        return None
    if given.string("type") != "grammar":
        raise given.fail("type", "must be text or grammar", given.string("type"))
    grammar = given.object("grammar") or given  # chat completions nest it once more
    if (syntax := grammar.string("syntax")) not in ("lark", "regex"):
        raise grammar.fail("syntax", "must be lark or regex", syntax)
    if not (definition := grammar.string("definition")):
        raise grammar.fail("definition", "is required")
    if syntax == "lark" and (fault := lark_fault(definition)):
        raise grammar.fail("definition", f"is no Lark grammar: {fault}")
    return {"type": "grammar", "syntax": syntax, "definition": definition}


def described(description: str | None, custom_format: Mapping[str, Any] | None) -> str | None:
    """The description the model reads: a grammar is part of it, since a model cannot keep to what it has not seen."""
    if custom_format is None:
        return description
    rule = f"The input must match this {custom_format['syntax']} grammar:\n{custom_format['definition']}"
    return f"{description}\n\n{rule}" if description else rule


def _read_choice(
    fields: Fields, key: str, tools: tuple[ToolDefinition, ...], *, parallel: bool
) -> ToolChoice:
    """`tool_choice`, or the older `function_call`, whose object is only a name."""
    choice = fields.get(key)
    names = {tool.name for tool in tools}
    if choice is None:
        return ToolChoice(mode="auto" if tools else "none", parallel=parallel)
    if isinstance(choice, str):
        return _named_by_text(fields, key, choice, names, parallel)
    chosen = Fields.of(choice, fields.name(key))
    if chosen.get("type") == "allowed_tools":
        return _allowed(chosen, names, parallel)
    name = _chosen_name(chosen, names)
    return ToolChoice(mode="required", names=(name,), named=True, parallel=parallel)


def _named_by_text(fields: Fields, key: str, choice: str, names: set[str], parallel: bool) -> ToolChoice:
    """A mode, or (as TensorRT Edge-LLM reads it) the bare name of a tool. A mode is never taken for a name."""
    mode = _MODES.get(choice)
    if mode is None:
        if choice in names:
            return ToolChoice(mode="required", names=(choice,), named=True, parallel=parallel)
        raise fields.fail(key, "must be none, auto, required or name a tool that is offered", choice)
    if mode == "required" and not names:
        raise fields.fail(key, "needs tools, and none are offered", choice)
    return ToolChoice(mode=mode if names else "none", parallel=parallel)


def _chosen_name(chosen: Fields, names: set[str]) -> str:
    kind = chosen.get("type") or next((kind for kind in _KINDS if kind in chosen.data), None)
    if kind is not None and kind not in _KINDS:
        raise chosen.fail("type", "must be function, custom or allowed_tools", kind)
    inner = chosen if kind is None else Fields.of(chosen.require(kind), chosen.name(kind))
    inner.require("name")
    name = inner.string("name") or ""
    if name not in names:
        raise inner.fail("name", "must be one of the tools offered", name)
    return name


def _allowed(chosen: Fields, names: set[str], parallel: bool) -> ToolChoice:
    inner = chosen.object("allowed_tools") or chosen
    mode = inner.string("mode") or "auto"
    if mode not in ("auto", "required"):
        raise inner.fail("mode", "must be auto or required", mode)
    allowed = tuple(dict.fromkeys(_allowed_names(inner, names)))
    if not allowed:
        raise inner.fail("tools", "must name at least one of the tools offered")
    return ToolChoice(mode="auto" if mode == "auto" else "required", names=allowed, parallel=parallel)


def _allowed_names(inner: Fields, names: set[str]) -> Iterator[str]:
    for i, raw in enumerate(inner.array("tools") or ()):
        yield _chosen_name(Fields.of(raw, inner.name(f"tools[{i}]")), names)
