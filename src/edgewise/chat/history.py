"""Conversations as templates take them: which roles, which order, which shape of content.

What the template cannot say itself is said in a user turn, so that nothing is lost and nothing moves:

- developer is system. The leading run of system messages is joined; a template without a system role gets it before the first
  user text.
- A later system message stays where it is: as a system message where the template writes those in place, else as user text between
  <system> and </system>.
- A template that demands alternating turns gets neighbours of one role joined with an empty line between, and an empty user
  turn before a conversation that the assistant opens.
- Calls and tool results become marked text where the template has no words for them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgewise.core.chat import Message, ToolCall, ToolDefinition
from edgewise.core.errors import InvalidRequestError

Turn = dict[str, Any]

JOINT = "\n\n"


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


def arrange(messages: Sequence[Message], can: Capabilities) -> list[Turn]:
    """The turns to render. Raises InvalidRequestError for an unknown role, naming the message."""
    turns = [_turn(message, can) for message in messages]
    turns = _place_system(turns, can)
    if not can.same_role_neighbours:
        turns = _join_neighbours(turns)
    if not can.assistant_first:
        first = next((i for i, turn in enumerate(turns) if turn["role"] != "system"), None)
        if first is not None and turns[first]["role"] == "assistant":
            turns.insert(first, {"role": "user", "content": ""})
    return [_with_typed_content(turn) for turn in turns] if can.typed_content else turns


def tool_schemas(tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    """Tools in the OpenAI shape, which templates are written for."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description or "",
                "parameters": tool.parameters or {"type": "object", "properties": {}},
            },
        }
        for tool in tools
    ]


def _turn(message: Message, can: Capabilities) -> Turn:
    role = "system" if message.role == "developer" else message.role
    if role not in ("system", "user", "assistant", "tool"):
        path = f"messages[{message.index}].role"
        raise InvalidRequestError(
            f"{path} is {role!r}; it must be system, developer, user, assistant or tool", param=path
        )
    turn: Turn = {"role": role, "content": message.text}
    if message.reasoning and role == "assistant":
        # One name in each template; they differ in which.
        turn |= dict.fromkeys(("reasoning_content", "reasoning", "thinking"), message.reasoning)
    if message.tool_calls and can.tool_calls:
        turn["tool_calls"] = [_call(call, can) for call in message.tool_calls]
    elif message.tool_calls:
        calls = (f"[called {call.name} with {_arguments_text(call)}]" for call in message.tool_calls)
        turn["content"] = JOINT.join(filter(None, (message.text, *calls)))
    if role == "tool" and not can.tool_results:
        return {"role": "user", "content": f"<tool_result>\n{message.text}\n</tool_result>"}
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        turn["name"] = message.name
    return turn


def _call(call: ToolCall, can: Capabilities) -> dict[str, Any]:
    arguments: Any = _arguments_text(call)
    if can.object_arguments:
        try:
            parsed = json.loads(arguments)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            arguments = parsed
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _arguments_text(call: ToolCall) -> str:
    """The arguments as JSON text; none at all are an empty object."""
    if isinstance(call.arguments, str):
        return call.arguments if call.arguments.strip() else "{}"
    return json.dumps(call.arguments or {}, ensure_ascii=False)


def _place_system(turns: list[Turn], can: Capabilities) -> list[Turn]:
    num_leading = next((i for i, turn in enumerate(turns) if turn["role"] != "system"), len(turns))
    leading, rest = turns[:num_leading], turns[num_leading:]
    if not can.late_system:
        rest = [_as_user(turn) if turn["role"] == "system" else turn for turn in rest]
    if not leading:
        return rest
    text = JOINT.join(turn["content"] for turn in leading)
    if can.system:
        return [leading[0] | {"content": text}, *rest]
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
