"""The input items of a Responses request -> the conversation.

A response is several items (reasoning, message, calls) where a conversation has one assistant turn; they are joined until a result or
a message of somebody else follows. An item that has no place in a conversation is left out and noted, but what a tool returned never
is: whatever its type, it becomes a tool's turn.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from edgewise.core.chat import CUSTOM_INPUT, Message, Part, Role, TextPart, ToolCall
from edgewise.protocols.content import read_content
from edgewise.protocols.fields import Fields, invalid
from edgewise.protocols.reasoning_fields import thought_text
from edgewise.protocols.responses_tools import OfferedTools

INSTRUCTIONS_INDEX = -1
EARLIER_INDEX = -2
"""`Message.index` of the instructions and of what an earlier response brings along; other messages have their item's place."""

_CARRIED = "edgewise-reasoning:"
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_MEDIA = {
    "input_image": "an image",
    "image_url": "an image",
    "image": "an image",
    "computer_screenshot": "an image",
    "input_audio": "audio",
    "input_file": "a document",
}
_CLIENT_CALLS = ("local_shell_call", "shell_call", "apply_patch_call", "computer_call", "tool_search_call")
"""Calls of built-in tools that a client runs itself and answers with an item of its own."""
_NOT_ARGUMENTS = ("id", "type", "status", "call_id", "caller", "execution")


def carry_reasoning(text: str) -> str:
    """Reasoning as an opaque string for `encrypted_content`: what a client sends back that keeps no readable reasoning."""
    return _CARRIED + base64.b64encode(text.encode()).decode()


def carried_reasoning(opaque: str | None) -> str | None:
    """What `carry_reasoning` was given; None for the strings of others."""
    if opaque is None or not opaque.startswith(_CARRIED):
        return None
    try:
        return base64.b64decode(opaque.removeprefix(_CARRIED), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


@dataclass(slots=True)
class _Turn:
    """An assistant turn that is being put together."""

    index: int
    parts: list[Part] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)

    def message(self) -> Message:
        return Message(
            role="assistant",
            parts=tuple(self.parts),
            tool_calls=tuple(self.calls),
            reasoning="\n\n".join(self.reasoning) or None,
            index=self.index,
        )


class Conversation:
    """Messages made from items, in order. `messages` are complete after `finish`."""

    def __init__(self, tools: OfferedTools, find_item: Callable[[str], dict[str, Any] | None]) -> None:
        self.messages: list[Message] = []
        self.ignored: list[str] = []
        self._tools = tools
        self._find_item = find_item
        self._turn: _Turn | None = None
        self._readers: dict[str, Callable[[Fields, int], None]] = {
            "message": self._message,
            "function_call": self._function_call,
            "custom_tool_call": self._custom_call,
            "reasoning": self._reasoning,
            "item_reference": self._reference,
            "mcp_call": self._mcp_call,
            "additional_tools": self._nothing,  # read with the other tools
        }

    def add_instructions(self, text: str) -> None:
        self._append(Message("system", (TextPart(text),), index=INSTRUCTIONS_INDEX))

    def add(self, raw: object, index: int, path: str) -> None:
        """One item. Raises InvalidRequestError naming its field."""
        item = Fields.of(raw, path)
        kind = "item_reference" if is_reference(item.data) else item.string("type") or "message"
        if (read := self._readers.get(kind)) is not None:
            read(item, index)
        elif kind in _CLIENT_CALLS:
            self._other_call(item, kind, index)
        elif kind.endswith("_output") or ("call_id" in item.data and "output" in item.data):
            self._output(item, index)
        elif "role" in item.data and "content" in item.data:
            self._message(item, index)
        else:
            self._note(f"input items of type {kind}")

    def finish(self) -> tuple[Message, ...]:
        self._close_turn()
        return tuple(self.messages)

    def _append(self, message: Message) -> None:
        self._close_turn()
        self.messages.append(message)

    def _close_turn(self) -> None:
        if self._turn is not None:
            self.messages.append(self._turn.message())
            self._turn = None

    def _open_turn(self, index: int) -> _Turn:
        if self._turn is None:
            self._turn = _Turn(index)
        return self._turn

    def _note(self, what: str) -> None:
        if what not in self.ignored:
            self.ignored.append(what)

    def _nothing(self, item: Fields, index: int) -> None:
        pass

    def _message(self, item: Fields, index: int) -> None:
        role = _ROLES.get(item.string("role") or "")
        if role is None:
            raise item.fail("role", "must be user, assistant, system or developer", item.get("role"))
        content = read_content(item)
        if content is None and role != "assistant":
            raise item.fail("content", "is required")
        parts, thoughts = content or ((), None)
        if role != "assistant":
            self._append(Message(role, parts, tool_call_id=item.string("tool_call_id"), index=index))
            return
        parts = tuple(part for part in parts if part != TextPart(""))
        if not parts and not thoughts:
            return
        if self._turn is not None and self._turn.parts and not self._turn.calls:
            self._close_turn()  # two messages in a row stay two
        turn = self._open_turn(index)
        turn.parts += parts
        turn.reasoning += [thoughts] if thoughts else []

    def _reasoning(self, item: Fields, index: int) -> None:
        opaque = item.string("encrypted_content")
        text = _thoughts(item, "content") or carried_reasoning(opaque) or _thoughts(item, "summary")
        if text:
            self._open_turn(index).reasoning.append(text)
        elif opaque:
            self._note("encrypted_content of another server")

    def _function_call(self, item: Fields, index: int) -> None:
        arguments: Any = item.get("arguments")
        if not isinstance(arguments, str | dict | None):
            raise item.fail("arguments", "must be a string of JSON", arguments)
        self._call(item, index, arguments)

    def _custom_call(self, item: Fields, index: int) -> None:
        written = orjson.dumps({CUSTOM_INPUT: item.string("input") or ""}).decode()
        self._call(item, index, written)

    def _call(self, item: Fields, index: int, arguments: str | dict[str, Any] | None) -> None:
        if not (name := item.string("name")):
            raise item.fail("name", "is required")
        model_name = self._tools.model_name(item.string("namespace"), name)
        self._open_turn(index).calls.append(ToolCall(_call_id(item), model_name, arguments))

    def _other_call(self, item: Fields, kind: str, index: int) -> None:
        """A call of a tool without a name of its own: the type names it, what it holds beside its ids are its arguments."""
        objects = (
            value for key in ("action", "arguments", "operation") if isinstance(value := item.get(key), dict)
        )
        rest = {key: value for key, value in item.data.items() if key not in _NOT_ARGUMENTS}
        written = orjson.dumps(next(objects, rest)).decode()
        self._open_turn(index).calls.append(ToolCall(_call_id(item), kind.removesuffix("_call"), written))

    def _mcp_call(self, item: Fields, index: int) -> None:
        """A call that another server made and answered in one item."""
        self._call(item, index, item.string("arguments"))
        outcome = item.get("output") if item.get("error") is None else item.get("error")
        self._append(
            Message("tool", (TextPart(_as_text(outcome)),), tool_call_id=_call_id(item), index=index)
        )

    def _output(self, item: Fields, index: int) -> None:
        key = "output" if "output" in item.data else "result" if "result" in item.data else "tools"
        self._append(
            Message(
                role="tool",
                parts=_read_output(item, key),
                tool_call_id=_call_id(item) or None,
                name=item.string("name"),
                index=index,
            )
        )

    def _reference(self, item: Fields, index: int) -> None:
        item_id = item.string("id")
        if not item_id:
            raise item.fail("type", "is required")
        if (found := self._find_item(item_id)) is None:
            raise invalid(item.name("id"), "names an item that is not stored here", item_id)
        self.add(found, index, item.path)


def _call_id(item: Fields) -> str:
    return item.string("call_id") or item.string("id") or ""


def _thoughts(item: Fields, key: str) -> str:
    given = item.get(key)
    blocks = given if isinstance(given, list) else [given]
    return "\n\n".join(filter(None, map(thought_text, blocks)))


def _read_output(item: Fields, key: str) -> tuple[TextPart, ...]:
    """What a tool returned. Media become a note, so that a loop that looks at a picture goes on."""
    output = item.get(key)
    if not isinstance(output, list):
        return (TextPart(_as_text(output)),)
    return tuple(TextPart(_output_text(part)) for part in output)


def _output_text(part: object) -> str:
    if not isinstance(part, dict):
        return _as_text(part)
    kind = part.get("type")
    if isinstance(kind, str) and kind in _MEDIA:
        return f"[{_MEDIA[kind]} was returned here; this model reads text only]"
    text = part.get("text")
    return text if isinstance(text, str) else _as_text(part)


def _as_text(value: object) -> str:
    """A result as text: older clients wrap it as {"content": text, "success": ...}."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, dict):
        if value.get("type") in _MEDIA:
            return _output_text(value)
        if isinstance(content := value.get("content"), str):
            return content
    return orjson.dumps(value).decode()


def own_items(fields: Fields) -> list[Any]:
    """`input` as a list of items; plain text is one user message."""
    given = fields.get("input")
    if given is None:
        return []
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    if not isinstance(given, list):
        raise fields.fail("input", "must be a string or an array of items", given)
    return given


def is_reference(item: Mapping[str, Any]) -> bool:
    """Whether an item only names another that was stored before."""
    return item.get("type") == "item_reference" or not (item.get("type") or "role" in item)


def tools_in_items(items: Sequence[object], tools: OfferedTools) -> None:
    """Tools that come with the conversation: `additional_tools`, and what a search for tools found."""
    for i, item in enumerate(items):
        if isinstance(item, dict) and item.get("type") in ("additional_tools", "tool_search_output"):
            path = f"input[{i}]"
            tools.add_all(Fields(item, path).array("tools") or (), f"{path}.tools")
