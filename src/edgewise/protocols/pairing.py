"""Tool results and the calls they answer.

A result that names its call must name one made before it. One that names none answers the oldest call of the last turn that nothing
has answered yet, by the tool's name where it gives one: this is how results were sent before calls had ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgewise.core.chat import Message, ToolCall
from edgewise.protocols.fields import invalid


def pair_results(messages: Sequence[Message], path: str) -> tuple[Message, ...]:
    """The messages with every result's `tool_call_id` set. Raises InvalidRequestError for a result without a call."""
    paired: list[Message] = []
    known: set[str] = set()
    waiting: list[ToolCall] = []
    for message in messages:
        if message.tool_calls:
            waiting = list(message.tool_calls)
            known.update(call.id for call in waiting)
        elif message.role == "tool":
            call_id = message.tool_call_id or _answered(message, waiting)
            name = f"{path}[{message.index}].tool_call_id"
            if call_id is None:
                raise invalid(name, "is required: no call before it waits for a result")
            if call_id not in known:
                raise invalid(name, "names no call of an earlier message", call_id)
            waiting = [call for call in waiting if call.id != call_id]
            message = replace(message, tool_call_id=call_id)
        paired.append(message)
    return tuple(paired)


def _answered(message: Message, waiting: Sequence[ToolCall]) -> str | None:
    by_name = (call.id for call in waiting if message.name in (None, call.name))
    return next(by_name, None)
