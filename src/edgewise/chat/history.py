"""Conversations as templates take them: which roles, which order, which shape of content.

What the template cannot say itself is said in a user turn, so that nothing is lost and nothing moves:

- developer is system. The leading run of system messages is joined; a template without a system role gets it before the first
  user text.
- A later system message stays where it is: as a system message where the template writes those in place, else as user text between
  <system> and </system>.
- A template that demands alternating turns gets neighbours of one role joined with an empty line between, and an empty user
  turn before a conversation that the assistant opens.
- Calls and tool results become text where the template has no words for them: as the model's tool dialect writes calls, if one is
  known. Tools it cannot list are listed in the system text.
- A billing line at the top of a system message (Claude Code's) is left out: it says nothing to a model, and changes with every
  session, which would void whatever is cached after it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgewise.chat.dialects import ToolDialect
from edgewise.chat.past_calls import (
    argument_object,
    argument_text,
    one_call_a_turn,
    text_before_calls,
    with_ids,
)
from edgewise.core.chat import CUSTOM_INPUT, CUSTOM_SCHEMA, Message, ToolCall, ToolDefinition
from edgewise.core.errors import InvalidRequestError

Turn = dict[str, Any]

JOINT = "\n\n"
BILLING_LINE = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*(?:\n+|\Z)")
CUSTOM_NOTE = f"The whole input goes, as it is, into the string `{CUSTOM_INPUT}`."
REASONING_NAMES = ("reasoning_content", "reasoning", "thinking")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a template was seen to do with probing conversations."""

    typed_content: bool = False  # content as a list of {"type": "text", "text": ...}
    system: bool = True
    late_system: bool = True
    same_role_neighbours: bool = True
    assistant_first: bool = True
    tools: bool = True
    tools_always_list: bool = False  # it loops over the tools without asking whether there are any
    tool_calls: bool = True
    tool_results: bool = True
    object_arguments: bool = True  # arguments of calls as an object, not as JSON text
    broken_arguments: bool = True  # arguments that are no JSON object, as the text they are
    several_calls: bool = True  # in one turn
    text_beside_calls: bool = True  # in one turn
    long_ids: bool = True  # ids of calls of any length
    text_beside_thinking: bool = True  # in a turn that calls
    thinking_parts: bool = False  # thinking as a part of the content, {"type": "thinking", "thinking": ...}


def arrange(
    messages: Sequence[Message],
    can: Capabilities,
    *,
    instructions: str = "",
    dialect: ToolDialect | None = None,
) -> list[Turn]:
    """The turns to render. `instructions` end the system text; `dialect` is how calls are written where the template cannot.

    Raises InvalidRequestError for an unknown role, naming the message.
    """
    messages = with_ids(messages, short=not can.long_ids)
    if not can.several_calls:
        messages = one_call_a_turn(messages)
    if not can.text_beside_calls and can.same_role_neighbours:
        messages = text_before_calls(messages)
    turns = [_turn(message, can, dialect) for message in messages if not _is_billing_alone(message)]
    turns = _place_system(turns, can, instructions)
    if not can.same_role_neighbours:
        turns = _join_neighbours(turns)
    if not can.assistant_first:
        first = next((i for i, turn in enumerate(turns) if turn["role"] != "system"), None)
        if first is not None and turns[first]["role"] == "assistant":
            turns.insert(first, {"role": "user", "content": ""})
    if can.typed_content:
        turns = [_with_typed_content(turn) for turn in turns]
    return [_with_thinking_part(turn) for turn in turns] if can.thinking_parts else turns


def tool_schemas(tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    """Tools in the OpenAI shape, which templates are written for; a custom tool is a function of one string."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": _description(tool),
                "parameters": _parameters(tool),
            },
        }
        for tool in tools
    ]


def _description(tool: ToolDefinition) -> str:
    if tool.kind == "custom":
        return JOINT.join(filter(None, (tool.description, CUSTOM_NOTE)))
    return tool.description or ""


def _parameters(tool: ToolDefinition) -> dict[str, Any]:
    return CUSTOM_SCHEMA if tool.kind == "custom" else tool.parameters or {"type": "object", "properties": {}}


def _turn(message: Message, can: Capabilities, dialect: ToolDialect | None) -> Turn:
    role = "system" if message.role == "developer" else message.role
    if role not in ("system", "user", "assistant", "tool"):
        path = f"messages[{message.index}].role"
        raise InvalidRequestError(
            f"{path} is {role!r}; it must be system, developer, user, assistant or tool", param=path
        )
    text = BILLING_LINE.sub("", message.text) if role == "system" else message.text
    turn: Turn = {"role": role, "content": text}
    if role == "assistant":
        turn |= _thinking(message, can)
    if message.tool_calls and can.tool_calls:
        turn["tool_calls"] = [_call(call, can) for call in message.tool_calls]
    elif message.tool_calls:
        turn["content"] = _calls_as_text(message.tool_calls, turn["content"], dialect)
    if role == "tool" and not can.tool_results:
        return {"role": "user", "content": f"<tool_result>\n{message.text}\n</tool_result>"}
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        turn["name"] = message.name
    return turn


def _is_billing_alone(message: Message) -> bool:
    """Whether a system message holds a billing line and nothing else."""
    is_system = message.role in ("system", "developer")
    return is_system and bool(message.text) and not BILLING_LINE.sub("", message.text)


def _thinking(message: Message, can: Capabilities) -> Turn:
    """Thinking under every name that templates know it by. Where it must not stand beside text, the text joins it."""
    if not message.reasoning:
        return {}
    if message.tool_calls and message.text and not can.text_beside_thinking:
        return {"content": ""} | dict.fromkeys(REASONING_NAMES, message.reasoning + JOINT + message.text)
    return dict.fromkeys(REASONING_NAMES, message.reasoning)


def _call(call: ToolCall, can: Capabilities) -> dict[str, Any]:
    arguments: Any = argument_object(call) if can.object_arguments else argument_text(call)
    if argument_object(call) is None:
        text = str(call.arguments)
        arguments = text if can.broken_arguments else {"arguments": text}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _calls_as_text(calls: Sequence[ToolCall], content: str, dialect: ToolDialect | None) -> str:
    if dialect is not None and all(argument_object(call) is not None for call in calls):
        return dialect.render(calls, content)
    return JOINT.join(
        filter(None, (content, *(f"[called {call.name} with {argument_text(call)}]" for call in calls)))
    )


def _place_system(turns: list[Turn], can: Capabilities, instructions: str) -> list[Turn]:
    num_leading = next((i for i, turn in enumerate(turns) if turn["role"] != "system"), len(turns))
    leading, rest = turns[:num_leading], turns[num_leading:]
    if not can.late_system:
        rest = [_as_user(turn) if turn["role"] == "system" else turn for turn in rest]
    if not leading and not instructions:
        return rest
    text = JOINT.join([*(turn["content"] for turn in leading), *([instructions] if instructions else [])])
    if can.system:
        return [(leading[0] if leading else {"role": "system"}) | {"content": text}, *rest]
    if rest and rest[0]["role"] == "user":
        return [rest[0] | {"content": JOINT.join(filter(None, (text, rest[0]["content"])))}, *rest[1:]]
    return [{"role": "user", "content": text}, *rest]


def _as_user(turn: Turn) -> Turn:
    return {"role": "user", "content": f"<system>\n{turn['content']}\n</system>"}


def _join_neighbours(turns: list[Turn]) -> list[Turn]:
    """Join user turns that follow each other, and assistant turns without calls."""
    joined: list[Turn] = []
    for turn in turns:
        last = joined[-1] if joined else None
        plain = last is not None and "tool_calls" not in last and "tool_calls" not in turn
        if (
            last is not None
            and plain
            and turn["role"] in ("user", "assistant")
            and last["role"] == turn["role"]
        ):
            content = JOINT.join(filter(None, (last["content"], turn["content"])))
            joined[-1] = last | turn | {"content": content}
        else:
            joined.append(turn)
    return joined


def _with_typed_content(turn: Turn) -> Turn:
    return turn | {"content": [{"type": "text", "text": turn["content"]}] if turn["content"] else []}


def _with_thinking_part(turn: Turn) -> Turn:
    """Thinking as the first part of the content."""
    thought = turn.get("thinking")
    if not thought:
        return turn
    text = turn["content"]
    parts = [{"type": "text", "text": text}] if isinstance(text, str) and text else text or []
    return turn | {"content": [{"type": "thinking", "thinking": thought}, *parts]}
