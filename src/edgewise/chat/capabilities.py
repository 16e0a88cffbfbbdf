"""Finds out what a template can do by rendering small conversations and looking for their words in the output."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from edgewise.chat.history import REASONING_NAMES, Capabilities, Turn
from edgewise.chat.template_process import Result
from edgewise.core.errors import ModelError

RenderAll = Callable[[Sequence[dict[str, Any]]], list[Result]]

_ASK, _REPLY, _MORE, _RULE = "w7rask", "w7rreply", "w7rmore", "w7rrule"
_ARGUMENT, _OUTCOME, _THOUGHT, _OTHER = "w7rargument", "w7routcome", "w7rthought", "w7rother"
_ID, _LONG_ID = "call00001", "call_w7r-0123456789abcdef"
_THINKING_ON = {"enable_thinking": True, "thinking": True}
_TOOL = {
    "type": "function",
    "function": {
        "name": "w7rtool",
        "description": "d",
        "parameters": {"type": "object", "properties": {"key": {"type": "string", "description": "d"}}},
    },
}


def probe(render_all: RenderAll) -> Capabilities:
    """Probe a template. Raises ModelError when it cannot even render one user message."""
    typed_ask = _user([{"type": "text", "text": _ASK}])
    no_tools: list[list[dict[str, Any]] | None] = [None, []]
    shapes = [(turn, tools) for tools in no_tools for turn in (_user(_ASK), typed_ask)]
    results = render_all([_context([turn], tools) for turn, tools in shapes])
    for (turn, tools), result in zip(shapes, results, strict=True):
        if _ASK in result.text:
            return _probe_rest(render_all, typed_content=turn is typed_ask, no_tools=tools)
    raise ModelError(
        f"the chat template cannot render a user message: {results[0].message or 'it leaves its text out'}"
    )


def _probe_rest(
    render_all: RenderAll, *, typed_content: bool, no_tools: list[dict[str, Any]] | None
) -> Capabilities:
    def say(role: str, text: str, **more: Any) -> Turn:
        content = [{"type": "text", "text": text}] if typed_content and text else text
        return {"role": role, "content": content, **more}

    def result_of(call_id: str) -> Turn:
        return say("tool", _OUTCOME, tool_call_id=call_id, name="w7rtool")

    ask, reply, more, rule = (
        say("user", _ASK),
        say("assistant", _REPLY),
        say("user", _MORE),
        say("system", _RULE),
    )
    outcome = result_of(_ID)
    thinking = dict.fromkeys(REASONING_NAMES, _THOUGHT)
    conversations = {
        "system": [rule, ask],
        "system later": [rule, ask, reply, more],
        "late": [ask, reply, rule, more],
        "late after user": [ask, rule, reply, more],
        "neighbours": [ask, more],
        "assistant first": [reply, ask],
        "text call": [ask, _calling(json.dumps({"key": _ARGUMENT})), outcome, reply, more],
        "object call": [ask, _calling({"key": _ARGUMENT}), outcome, reply, more],
    }
    contexts = [_context(turns, no_tools) for turns in conversations.values()]
    results = render_all([*contexts, _context([ask], [_TOOL])])
    text = dict(zip((*conversations, "tools"), (result.text for result in results), strict=True))
    object_arguments = _json_argument(text["object call"]) or not _in_order(text["text call"], _ARGUMENT)
    best = "object call" if object_arguments else "text call"
    call_text = text[best]
    calls = _in_order(call_text, _ASK, _ARGUMENT, _MORE)
    arguments: Any = {"key": _ARGUMENT} if object_arguments else json.dumps({"key": _ARGUMENT})
    call = _calling(arguments)
    part = [{"type": "thinking", "thinking": _THOUGHT}, {"type": "text", "text": _REPLY}]
    further = {
        "broken": [ask, _calling(_ARGUMENT + " {"), outcome, reply, more],
        "several": [
            ask,
            _calling(arguments, {"key": _OTHER} if object_arguments else _OTHER),
            outcome,
            reply,
        ],
        "long id": [ask, _calling(arguments, call_id=_LONG_ID), result_of(_LONG_ID), reply, more],
        "text and call": [ask, call | say("assistant", _REPLY), outcome],
        "thought": [ask, call | thinking, outcome],
        "thought and text": [ask, call | thinking | say("assistant", _REPLY), outcome],
        "thinking part": [ask, {"role": "assistant", "content": part}],
        "thinking field": [ask, reply | thinking],
    }
    contexts = [_context(turns, no_tools) | _THINKING_ON for turns in further.values()]
    found = dict(zip(further, render_all(contexts), strict=True))
    return Capabilities(
        typed_content=typed_content,
        # Some templates move it to the last user turn, which changes every earlier prompt.
        system=_in_order(text["system"], _RULE, _ASK)
        and _in_order(text["system later"], _RULE, _ASK, _REPLY),
        late_system=_in_order(text["late"], _ASK, _REPLY, _RULE, _MORE)
        and _in_order(text["late after user"], _ASK, _RULE, _REPLY, _MORE),
        same_role_neighbours=_in_order(text["neighbours"], _ASK, _MORE),
        assistant_first=_in_order(text["assistant first"], _REPLY, _ASK),
        tools="w7rtool" in text["tools"],
        tools_always_list=no_tools is not None,
        tool_calls=calls,
        tool_results=_in_order(call_text, _ASK, _OUTCOME, _MORE),
        object_arguments=object_arguments,
        broken_arguments=not calls or _in_order(found["broken"].text, _ASK, _ARGUMENT, _MORE),
        several_calls=not calls or _in_order(found["several"].text, _ARGUMENT, _OTHER),
        text_beside_calls=not calls
        or all(word in found["text and call"].text.partition(_OUTCOME)[0] for word in (_REPLY, _ARGUMENT)),
        long_ids=not calls or not found["long id"].error,
        text_beside_thinking=bool(found["thought"].error) or not found["thought and text"].error,
        thinking_parts=_as_part(found["thinking part"].text) and _THOUGHT not in found["thinking field"].text,
    )


def _user(content: Any) -> Turn:
    return {"role": "user", "content": content}


def _calling(*arguments: Any, call_id: str = _ID) -> Turn:
    calls = [
        {"id": call_id, "type": "function", "function": {"name": "w7rtool", "arguments": each}}
        for each in arguments
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _context(turns: list[Turn], tools: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {"messages": turns, "tools": tools, "add_generation_prompt": True}


def _in_order(text: str, *words: str) -> bool:
    """Whether all words occur, each for the first time after the former's first."""
    places = [text.find(word) for word in words]
    return -1 not in places and places == sorted(places)


def _json_argument(text: str) -> bool:
    """Whether an argument given as an object came out, and not as Python would print it."""
    return _ARGUMENT in text and f"'{_ARGUMENT}'" not in text


def _as_part(text: str) -> bool:
    """Whether thinking given as a part came out, and the part not as Python would print it."""
    return _THOUGHT in text and f"'{_THOUGHT}'" not in text and f'"{_THOUGHT}"' not in text
