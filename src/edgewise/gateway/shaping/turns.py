"""Rules on the messages of a chat body: who may speak where, and calls as they were before there were tools."""

from __future__ import annotations

from typing import Any

from edgewise.gateway.profile import Api, Fault, Kind, Profile
from edgewise.gateway.shaping.step import Body, Context, Step, map_messages, objects, text_of, when, without

_SYSTEM = ("system", "developer")


def _map_developer(body: Body, context: Context) -> Body:
    def change(message: dict[str, Any]) -> dict[str, Any]:
        return {**message, "role": "system"} if message.get("role") == "developer" else message

    return map_messages(body, change)


def _gather_system(body: Body, context: Context) -> Body:
    """One message at the top with the text of all, blank lines between."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return body
    places = [i for i, one in enumerate(messages) if isinstance(one, dict) and one.get("role") in _SYSTEM]
    faults = context.profile.faults
    late = bool(places) and places[-1] >= len(places)  # then another role comes before the last of them
    refused = (late and Fault.LATE_SYSTEM in faults) or (len(places) > 1 and Fault.SEVERAL_SYSTEM in faults)
    if not refused:
        return body
    text = "\n\n".join(filter(None, (text_of(messages[i].get("content")) for i in places)))
    rest = [one for i, one in enumerate(messages) if i not in set(places)]
    return {**body, "messages": [{"role": "system", "content": text}, *rest]}


def _is_before_tools(profile: Profile, api: Api) -> bool:
    """OpenAI's own servers, and ours, know functions still; whoever says so in a list of fields does too."""
    fields = profile.fields.get(api)
    return (
        api is Api.CHAT
        and profile.kind is not Kind.EDGEWISE
        and (fields is None or "functions" not in fields)
    )


def _replace_functions(body: Body, context: Context) -> Body:
    """`functions` and `function_call` as tools. A function has no id: its results follow its call by name."""
    changed = _call_turns(body)
    functions = body.get("functions")
    if isinstance(functions, list) and not body.get("tools"):
        changed = {**changed, "tools": [{"type": "function", "function": one} for one in functions]}
        choice = body.get("function_call")
        if isinstance(choice, dict):
            changed["tool_choice"] = {"type": "function", "function": choice}
        elif isinstance(choice, str):
            changed["tool_choice"] = choice
        changed["parallel_tool_calls"] = False
    return without(changed, "functions", "function_call")


def _call_turns(body: Body) -> Body:
    messages = body.get("messages")
    if not any("function_call" in one or one.get("role") == "function" for one in objects(messages)):
        return body
    assert isinstance(messages, list)
    changed, last_id = [], ""
    for i, message in enumerate(messages):
        if isinstance(message, dict) and isinstance(message.get("function_call"), dict):
            last_id = f"call_{i}"
            call = {"id": last_id, "type": "function", "function": message["function_call"]}
            message = {**without(message, "function_call"), "tool_calls": [call]}
        elif isinstance(message, dict) and message.get("role") == "function":
            message = {**without(message, "name"), "role": "tool", "tool_call_id": last_id}
        elif isinstance(message, dict):
            message = without(message, "function_call")
        changed.append(message)
    return {**body, "messages": changed}


TURN_STEPS = (
    Step("functions-to-tools", _is_before_tools, _replace_functions),
    Step("developer-to-system", when(Fault.DEVELOPER_ROLE), _map_developer),
    Step("system-gathered", when(Fault.LATE_SYSTEM, Fault.SEVERAL_SYSTEM), _gather_system),
)
