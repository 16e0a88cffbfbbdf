"""Calls and results of earlier turns, as a template can take them.

The same call renders the same however a client sent it: arguments are an object or its JSON text in one spelling; text that is no JSON
object stays text. Ids are made where they are missing, and shortened, each always to the same, where a template wants them short.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edgewise.core.chat import Message, ToolCall

SHORT_ID_LEN = 9  # what Mistral's templates demand: nine letters and digits
SHORT_ID = re.compile(rf"[A-Za-z0-9]{{{SHORT_ID_LEN}}}")


def with_ids(messages: Sequence[Message], *, short: bool) -> list[Message]:
    """The messages with an id on every call and result: a result without one answers the first call that has none yet."""
    found: list[Message] = []
    waiting: list[str] = []
    num_calls = 0
    for message in messages:
        calls = []
        for call in message.tool_calls:
            call_id = _fitting(call.id or f"call{num_calls:05d}", short=short)
            num_calls += 1
            waiting.append(call_id)
            calls.append(call if call_id == call.id else replace(call, id=call_id))
        result_id = message.tool_call_id
        if message.role == "tool":
            result_id = _fitting(result_id, short=short) if result_id else (waiting[0] if waiting else "")
            if result_id in waiting:
                waiting.remove(result_id)
        if calls or result_id != message.tool_call_id:
            message = replace(message, tool_calls=tuple(calls), tool_call_id=result_id)
        found.append(message)
    return found


def _fitting(call_id: str, *, short: bool) -> str:
    if not short or SHORT_ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:SHORT_ID_LEN]


def one_call_a_turn(messages: Sequence[Message]) -> list[Message]:
    """For templates that write the first call of a turn only: each call in a turn of its own, its result right after it."""
    found: list[Message] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if len(message.tool_calls) < 2:
            found.append(message)
            continue
        results: list[Message] = []
        while position < len(messages) and messages[position].role == "tool":
            results.append(messages[position])
            position += 1
        for i, call in enumerate(message.tool_calls):
            first = message if i == 0 else replace(message, parts=(), reasoning=None)
            found.append(replace(first, tool_calls=(call,)))
            found += [result for result in results if result.tool_call_id == call.id]
        answered = {call.id for call in message.tool_calls}
        found += [result for result in results if result.tool_call_id not in answered]
    return found


def text_before_calls(messages: Sequence[Message]) -> list[Message]:
    """For templates that leave out the one or the other: a turn that says something and calls becomes two."""
    found: list[Message] = []
    for message in messages:
        if message.tool_calls and message.text.strip():
            found += replace(message, tool_calls=()), replace(message, parts=(), reasoning=None)
        else:
            found.append(message)
    return found


def argument_object(call: ToolCall) -> dict[str, Any] | None:
    """The arguments as an object; none at all are an empty one. None: they are text that is no JSON object."""
    if not isinstance(call.arguments, str):
        return dict(call.arguments or {})
    if not call.arguments.strip():
        return {}
    try:
        value = json.loads(call.arguments)
        if r"\ud" in call.arguments.lower():  # half a character, which no prompt can hold, as U+FFFD
            whole = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
            value = json.loads(whole.decode("utf-16", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def argument_text(call: ToolCall) -> str:
    """The arguments as JSON text in one spelling, that of the examples models are trained on; what is no object, as it came."""
    value = argument_object(call)
    return str(call.arguments) if value is None else json.dumps(value, ensure_ascii=False)
