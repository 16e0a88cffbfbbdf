"""OpenAI chat messages -> core messages. Every error names the message by its index."""

from __future__ import annotations

from typing import Any, get_args

from edgewise.core.chat import Message, Role, TextPart, ToolCall
from edgewise.core.errors import InvalidRequestError
from edgewise.protocols.fields import Fields, invalid

_ROLES: tuple[Role, ...] = get_args(Role)
_TEXT_PARTS = ("text", "input_text", "output_text")
_MEDIA_PARTS = {
    "image_url": "an image",
    "input_image": "an image",
    "image": "an image",
    "image_embeds": "an image",
    "input_audio": "audio",
    "audio_url": "audio",
    "audio": "audio",
    "video_url": "a video",
    "video": "a video",
    "file": "a document",
    "input_file": "a document",
}


def read_messages(fields: Fields) -> tuple[Message, ...]:
    """The conversation of a request body. Raises InvalidRequestError for anything but a list of well-formed turns."""
    messages = fields.array("messages")
    if not messages:
        raise fields.fail("messages", "must be a non-empty array")
    return tuple(
        _read_message(raw, index, fields.name(f"messages[{index}]")) for index, raw in enumerate(messages)
    )


def _read_message(raw: object, index: int, path: str) -> Message:
    fields = Fields.of(raw, path)
    role = _read_role(fields)
    parts = _read_content(fields)
    calls = _read_tool_calls(fields)
    if parts is None and role in ("system", "developer", "user"):
        raise fields.fail("content", "is required")
    if calls and role != "assistant":
        raise fields.fail("tool_calls", "may only be in assistant messages")
    reasoning = fields.string("reasoning")
    older_spelling = fields.string("reasoning_content")
    return Message(
        role=role,
        parts=parts or (),
        tool_calls=calls,
        tool_call_id=fields.string("tool_call_id"),
        name=fields.string("name"),
        reasoning=reasoning if reasoning is not None else older_spelling,
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


def _read_content(fields: Fields) -> tuple[TextPart, ...] | None:
    content = fields.get("content")
    if content is None:
        return None
    if isinstance(content, str):
        return (TextPart(content),)
    if not isinstance(content, list):
        raise fields.fail("content", "must be a string or an array of parts", content)
    return tuple(_read_part(part, fields.name(f"content[{i}]")) for i, part in enumerate(content))


def _read_part(raw: object, path: str) -> TextPart:
    if isinstance(raw, str):
        return TextPart(raw)
    part = Fields.of(raw, path)
    kind = part.string("type")
    if kind in _TEXT_PARTS:
        return TextPart(_required_text(part, "text"), {key: part.data[key] for key in part.unread()})
    if kind == "refusal":
        return TextPart(_required_text(part, "refusal"))
    if kind in _MEDIA_PARTS:
        raise invalid(path, f"is {_MEDIA_PARTS[kind]} ({kind}); this model takes text only")
    raise part.fail("type", "must be a known kind of part such as text", kind)


def _required_text(part: Fields, key: str) -> str:
    part.require(key)
    return part.string(key) or ""


def _read_tool_calls(fields: Fields) -> tuple[ToolCall, ...]:
    calls = fields.array("tool_calls") or []
    return tuple(_read_tool_call(call, fields.name(f"tool_calls[{i}]")) for i, call in enumerate(calls))


def _read_tool_call(raw: object, path: str) -> ToolCall:
    call = Fields.of(raw, path)
    call.get("type")
    function = Fields.of(call.require("function"), call.name("function"))
    arguments: Any = function.get("arguments")
    if not isinstance(arguments, str | dict | None):
        raise function.fail("arguments", "must be a string of JSON", arguments)
    name = function.string("name")
    if not name:
        raise function.fail("name", "is required")
    return ToolCall(id=call.string("id") or "", name=name, arguments=arguments)


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
