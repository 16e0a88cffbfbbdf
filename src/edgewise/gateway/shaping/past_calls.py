"""Rules on the calls in a chat body's history: the form of their arguments, and ids that results can be matched by.

Templates of many models walk a call's arguments as a mapping. An upstream that hands them text renders a call without arguments, answers 200,
and the model reads that it did nothing.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from edgewise.chat.dialects.arguments import dumped
from edgewise.gateway.profile import Api, Fault, Kind, Profile
from edgewise.gateway.shaping.arguments import mended
from edgewise.gateway.shaping.step import Body, Context, Step, map_calls, map_messages, text_of, when, without


def _with_arguments(call: dict[str, Any], arguments: Any) -> dict[str, Any]:
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _arguments_of(call: dict[str, Any]) -> Any:
    function = call.get("function")
    return function.get("arguments") if isinstance(function, dict) else None


def _unpack(call: dict[str, Any]) -> dict[str, Any]:
    """Text as the object it holds. Text that is none is mended, since one broken call would have every later request refused."""
    arguments = _arguments_of(call)
    if not isinstance(arguments, str):
        return call
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        value = None
    return _with_arguments(call, value if isinstance(value, dict) else json.loads(mended(arguments)))


def _pack(call: dict[str, Any]) -> dict[str, Any]:
    arguments = _arguments_of(call)
    if arguments is None or isinstance(arguments, str):
        return call
    return _with_arguments(call, dumped(arguments))


def _unpack_all(body: Body, context: Context) -> Body:
    return map_messages(body, lambda message: map_calls(message, _unpack))


def _pack_all(body: Body, context: Context) -> Body:
    return map_messages(body, lambda message: map_calls(message, _pack))


def _takes_objects_only(profile: Profile, api: Api) -> bool:
    """Nothing helps where neither form is read."""
    faults = profile.faults
    return api is Api.CHAT and Fault.STRING_ARGUMENTS in faults and Fault.OBJECT_ARGUMENTS not in faults


def _matches_ids(profile: Profile, api: Api) -> bool:
    return api is Api.CHAT and profile.kind is Kind.EDGE_LLM


class _Ids:
    """Calls of one conversation and the results that are still due, oldest first."""

    def __init__(self) -> None:
        self._due: list[str] = []
        self._count = 0

    def call(self, call: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in self._due:
            call_id = f"call_{self._count}"
            call = {**call, "id": call_id}
        self._due.append(call_id)
        return call

    def turn(self, message: dict[str, Any]) -> dict[str, Any]:
        match message.get("role"):
            case "assistant":
                self._due.clear()
                return map_calls(message, self.call)
            case "tool":
                return self._result(message)
            case _:
                return message

    def _result(self, message: dict[str, Any]) -> dict[str, Any]:
        """A result of a call that is due; one without any is what it says, said by the user."""
        call_id = message.get("tool_call_id")
        if call_id in self._due:
            self._due.remove(call_id)
            return message
        if self._due:
            return {**message, "tool_call_id": self._due.pop(0)}
        return {"role": "user", "content": text_of(message.get("content"))}


def _match_ids(body: Body, context: Context) -> Body:
    return map_messages(body, _Ids().turn)


def _drop_empty_calls(body: Body, context: Context) -> Body:
    def change(message: dict[str, Any]) -> dict[str, Any]:
        return without(message, "tool_calls") if message.get("tool_calls") in (None, []) else message

    return map_messages(body, change)


CALL_STEPS = (
    Step("arguments-to-objects", _takes_objects_only, _unpack_all),
    Step("arguments-to-strings", when(Fault.OBJECT_ARGUMENTS), _pack_all),
    Step("call-ids", _matches_ids, _match_ids),
    Step("empty-calls", _matches_ids, _drop_empty_calls),
)
