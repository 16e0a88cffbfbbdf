"""Tools and tool_choice of a Responses request.

What the model sees is always a function. A namespace is opened: each of its tools gets one flat name, `namespace__tool`, and the answer
closes it again. A freeform ("custom") tool becomes a function with one string. Tools that only OpenAI's own servers can run are left
out and noted; a request is never refused for offering one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from edgewise.core.chat import CUSTOM_SCHEMA, ToolChoice, ToolDefinition
from edgewise.protocols.fields import Fields, invalid
from edgewise.protocols.tools import described, read_custom_format, read_name

_JOINT = "__"
_MODES: tuple[Literal["auto", "none", "required"], ...] = ("auto", "none", "required")

WireName = tuple[str | None, str]
"""A tool as a client names it: its namespace, if it has one, and its name there."""


def flat_name(namespace: str | None, name: str) -> str:
    """The one name a model sees of a tool in a namespace."""
    if not namespace:
        return name
    return namespace + name if namespace.endswith(_JOINT) else namespace + _JOINT + name


class OfferedTools:
    """The tools of one request in the order they were offered, found by the client's name and by the model's."""

    def __init__(self) -> None:
        self.by_model_name: dict[str, ToolDefinition] = {}
        self.ignored: list[str] = []
        self._by_wire_name: dict[WireName, ToolDefinition] = {}

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        return tuple(self.by_model_name.values())

    def add_all(self, raw_tools: Iterable[object], path: str) -> None:
        """Read a list of tools. Raises InvalidRequestError for one that has no name or no object for a schema."""
        for i, raw in enumerate(raw_tools):
            self._add(Fields.of(raw, f"{path}[{i}]"), None)

    def model_name(self, namespace: str | None, name: str) -> str:
        """The model's name of a call in the history, whether or not its tool is offered any more."""
        tool = self._by_wire_name.get((namespace, name))
        return flat_name(namespace, name) if tool is None else tool.name

    def named(self, namespace: str | None, name: str) -> tuple[str, ...]:
        """The model's names of what a choice means by a name: a tool, or all tools of a namespace. Empty: not offered."""
        if (tool := self._by_wire_name.get((namespace, name))) is not None:
            return (tool.name,)
        if namespace is None and name in self.by_model_name:
            return (name,)
        inside = [tool.name for (space, _), tool in self._by_wire_name.items() if space == name]
        local = [tool.name for (_, local), tool in self._by_wire_name.items() if local == name]
        return tuple(inside) or (tuple(local) if namespace is None and len(local) == 1 else ())

    def _add(self, tool: Fields, namespace: str | None) -> None:
        kind = tool.string("type") or "function"
        if kind == "namespace" and namespace is None:
            self._open(tool)
        elif kind in ("function", "custom"):
            inner = tool.object("function") or tool.object("custom")  # the nested shape of chat completions
            self._define(tool if inner is None else inner, kind, namespace, tool)
        else:
            self._note(f"tools of type {kind}")

    def _open(self, container: Fields) -> None:
        name = read_name(container)
        for i, raw in enumerate(container.array("tools") or ()):
            self._add(Fields.of(raw, container.name(f"tools[{i}]")), name)

    def _define(self, inner: Fields, kind: str, namespace: str | None, outer: Fields) -> None:
        name = read_name(inner)
        if (namespace, name) in self._by_wire_name:
            self._note(f"a second tool {name}")
            return
        custom = kind == "custom"
        parameters = None if custom else inner.object("parameters")
        tool_format = read_custom_format(inner) if custom else None
        strict = inner.boolean("strict") if inner.get("strict") is not None else None
        tool = ToolDefinition(
            name=self._unused(flat_name(namespace, name)),
            description=described(inner.string("description"), tool_format),
            parameters=CUSTOM_SCHEMA if custom else None if parameters is None else dict(parameters.data),
            strict=strict,
            kind="custom" if custom else "function",
            namespace=namespace,
            local_name=name,
            custom_format=tool_format,
            path=outer.path,
            raw=dict(outer.data),
        )
        self.by_model_name[tool.name] = tool
        self._by_wire_name[(namespace, name)] = tool

    def _unused(self, name: str) -> str:
        unused, number = name, 2
        while unused in self.by_model_name:
            unused, number = f"{name}_{number}", number + 1
        return unused

    def _note(self, what: str) -> None:
        if what not in self.ignored:
            self.ignored.append(what)


def read_tool_choice(fields: Fields, tools: OfferedTools) -> ToolChoice:
    """`tool_choice` and `parallel_tool_calls`. Raises InvalidRequestError for a choice that the tools cannot meet."""
    parallel = fields.boolean("parallel_tool_calls", True)
    choice = fields.get("tool_choice")
    if isinstance(choice, str) or choice is None:
        mode = next((mode for mode in _MODES if mode == (choice or "auto")), None)
        if mode is None:
            raise fields.fail("tool_choice", "must be auto, none, required or an object", choice)
        if mode == "required" and not tools.by_model_name:
            raise fields.fail("tool_choice", "is required, but no tool that can be called is offered")
        return ToolChoice(mode=mode, parallel=parallel)
    chosen = Fields.of(choice, "tool_choice")
    kind = chosen.string("type")
    if kind == "allowed_tools":
        return _allowed(chosen, tools, parallel)
    if kind not in ("function", "custom"):
        raise chosen.fail("type", "must be function, custom or allowed_tools", kind)
    return ToolChoice(mode="required", names=_names_of(chosen, kind, tools), named=True, parallel=parallel)


def _names_of(entry: Fields, kind: str, tools: OfferedTools) -> tuple[str, ...]:
    inner = entry.object(kind) or entry  # {"type": "function", "function": {"name": ...}}
    names = tools.named(inner.string("namespace"), read_name(inner))
    if not names:
        raise invalid(inner.name("name"), "must be one of the tools offered", inner.string("name"))
    return names


def _allowed(choice: Fields, tools: OfferedTools, parallel: bool) -> ToolChoice:
    inner = choice.object("allowed_tools") or choice
    mode = inner.string("mode") or "auto"
    if mode not in ("auto", "required"):
        raise inner.fail("mode", "must be auto or required", mode)
    names: list[str] = []
    for i, raw in enumerate(inner.array("tools") or ()):
        entry = Fields.of(raw, inner.name(f"tools[{i}]"))
        if (kind := entry.string("type")) in ("function", "custom", "namespace"):
            names += _names_of(entry, kind, tools)
    if not names:
        raise inner.fail("tools", "must name at least one of the tools offered")
    return ToolChoice(
        mode="auto" if mode == "auto" else "required", names=tuple(dict.fromkeys(names)), parallel=parallel
    )
