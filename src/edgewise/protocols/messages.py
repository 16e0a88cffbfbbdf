"""OpenAI chat messages -> core messages. Every error names the message by its index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from edgewise.core.chat import CUSTOM_INPUT, Message, Role, ToolCall
from edgewise.core.errors import InvalidRequestError
from edgewise.protocols.content import read_content, without_media
from edgewise.protocols.fields import Fields, invalid
from edgewise.protocols.pairing import pair_results
from edgewise.protocols.reasoning_fields import replayed_reasoning

_ROLES: tuple[Role, ...] = get_args(Role)


def read_messages(fields: Fields) -> tuple[Message, ...]:
    """The conversation of a request body. Raises InvalidRequestError for anything but a list of well-formed turns."""
    messages = fields.array("messages")
    if not messages:
        raise fields.fail("messages", "must be a non-empty array")
    read = [_read_message(raw, i, fields.name(f"messages[{i}]")) for i, raw in enumerate(messages)]
    return pair_results(read, fields.name("messages"))


def _read_message(raw: object, index: int, path: str) -> Message:
    fields = Fields.of(raw, path)
    role = _read_role(fields)
    content = read_content(fields)
    calls = tuple(_read_calls(fields, index))
    if content is None and role in ("system", "developer", "user"):
        raise fields.fail("content", "is required")
    if calls and role != "assistant":
        raise fields.fail("tool_calls", "may only be in assistant messages")
    parts, thoughts = content or ((), None)
    return Message(
        role=role,
        parts=without_media(parts) if role == "tool" else parts,
        tool_calls=calls,
        tool_call_id=fields.string("tool_call_id") or None,
        name=fields.string("name") or (fields.string("tool_name") if role == "tool" else None),
        reasoning=(replayed_reasoning(fields) or thoughts) if role == "assistant" else None,
        index=index,
        extra={key: fields.data[key] for key in fields.unread()},
    )


def _read_role(fields: Fields) -> Role:
    role = fields.string("role")
    if role == "function":  # the name of tool results before 2024
        return "tool"
    if role not in _ROLES:
        raise fields.fail("role", f"must be one of {', '.join(_ROLES)}", role)
    return role


def _read_calls(fields: Fields, index: int) -> Iterator[ToolCall]:
    """`tool_calls`, or the one `function_call` of the older API. A call without an id gets one that stays the same every turn."""
    calls = fields.array("tool_calls") or []
    for i, raw in enumerate(calls):
        yield _read_call(raw, fields.name(f"tool_calls[{i}]"), f"call_{index}_{i}")
    legacy = fields.object("function_call")
    if legacy is not None and not calls:
        yield _read_function(legacy, f"call_{index}_0")


def _read_call(raw: object, path: str, fallback_id: str) -> ToolCall:
    call = Fields.of(raw, path)
    call_id = call.string("id") or fallback_id
    if call.string("type") == "custom":
        custom = Fields.of(call.require("custom"), call.name("custom"))
        return ToolCall(call_id, _name(custom), {CUSTOM_INPUT: custom.string("input") or ""})
    return _read_function(Fields.of(call.require("function"), call.name("function")), call_id)


def _read_function(function: Fields, call_id: str) -> ToolCall:
    """Arguments are kept as they came: text (broken or not), an object, nothing."""
    arguments: Any = function.get("arguments")
    if not isinstance(arguments, str | dict | None):
        raise function.fail("arguments", "must be a string of JSON", arguments)
    return ToolCall(call_id, _name(function), arguments)


def _name(fields: Fields) -> str:
    if not (name := fields.string("name")):
        raise fields.fail("name", "is required")
    return name


def trailing_turn(messages: tuple[Message, ...], fields: Fields) -> tuple[tuple[Message, ...], bool, bool]:
    """(messages, add_generation_prompt, continue_final_message) as the flags and the last message mean them.

    A trailing assistant turn is continued unless a flag says otherwise; an empty one is an open turn already.
    """
    last = messages[-1]
    continues = fields.get("continue_final_message")
    opens = fields.get("add_generation_prompt")
    flags = fields.boolean("add_generation_prompt", True), fields.boolean("continue_final_message")
    if continues and opens:
        raise fields.fail("continue_final_message", "and add_generation_prompt cannot both be true")
    if continues and last.role != "assistant":
        raise invalid(
            f"messages[{last.index}].role", "must be assistant to continue the final message", last.role
        )
    if continues:
        return messages, False, True
    if continues is None and opens is None and last.role == "assistant" and not last.tool_calls:
        return (messages, False, True) if last.text else (_without_last(messages), True, False)
    return messages, *flags


def _without_last(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    if len(messages) == 1:
        raise InvalidRequestError("messages must hold more than an empty assistant turn", param="messages")
    return messages[:-1]
