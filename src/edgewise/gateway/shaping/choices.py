"""Rules on the choice of tools, for upstreams that accept a choice and then do as they like.

`none`: the tools are withheld. `required` and a named tool: the answer is bound to the JSON of a call by structured output, where the upstream
has it beside tools; the reply's repairs make a call of that JSON. Where it has not, `enforce` checks the answer and asks again.
"""

from __future__ import annotations

from typing import Any, assert_never

from edgewise.gateway.profile import Api, Fault, Kind, Profile
from edgewise.gateway.shaping.fields import allowed_fields
from edgewise.gateway.shaping.step import Body, Context, Step, objects, when, without

SCHEMA_NAME = "tool_call"
UNENFORCED = frozenset((Fault.REQUIRED_CHOICE, Fault.NAMED_CHOICE, Fault.CHOICE_REFUSED))
_MODES = {"required": Fault.REQUIRED_CHOICE, "named": Fault.NAMED_CHOICE}


def asked_choice(body: Body, api: Api) -> tuple[str, str]:
    """(mode, name) of a chat or messages body: "auto", "none", "required" or "named"."""
    choice = body.get("tool_choice")
    if api is Api.MESSAGES:
        kind = choice.get("type") if isinstance(choice, dict) else "auto"
        named = choice.get("name", "") if isinstance(choice, dict) and kind == "tool" else ""
        return {"any": "required", "tool": "named", "none": "none"}.get(str(kind), "auto"), str(named)
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else choice.get("name")
        return ("named", name) if isinstance(name, str) else ("auto", "")
    if choice in (None, "auto", "none", "required"):
        return str(choice or "auto"), ""
    return "named", str(choice)


def is_unenforced(body: Body, profile: Profile, api: Api) -> bool:
    """Whether a body asks for a call that its upstream may not make."""
    if not body.get("tools"):
        return False
    fault = _MODES.get(asked_choice(body, api)[0])
    return fault is not None and not profile.faults.isdisjoint((fault, Fault.CHOICE_REFUSED))


def can_bind(profile: Profile, api: Api) -> bool:
    """Whether an upstream keeps to a JSON schema in a request that offers tools too."""
    fields = allowed_fields(profile, api)
    if api is not Api.CHAT or Fault.JSON_SCHEMA in profile.faults:
        return False
    match profile.kind:
        case Kind.EDGE_LLM | Kind.VLLM | Kind.EDGEWISE:
            return fields is None or "response_format" in fields
        case Kind.LLAMA | Kind.OPENAI:  # llama-server refuses both together, of others nothing is known
            return False
        case kind:
            assert_never(kind)


def _withhold(body: Body, context: Context) -> Body:
    if not body.get("tools") or asked_choice(body, context.api)[0] != "none":
        return body
    return without(body, "tools", "tool_choice", "parallel_tool_calls")


def _binds(profile: Profile, api: Api) -> bool:
    return not UNENFORCED.isdisjoint(profile.faults) and can_bind(profile, api)


def _bind(body: Body, context: Context) -> Body:
    """The tools stay, for the template; the choice is free, and the answer must be the JSON of a call."""
    if not is_unenforced(body, context.profile, context.api):
        return body
    _, name = asked_choice(body, context.api)
    functions = [one.get("function") or {} for one in objects(body["tools"])]
    chosen = [one for one in functions if not name or one.get("name") == name]
    if not chosen:
        return body  # the upstream refuses a name that is not offered, in its own words
    if body.get("response_format") not in (None, {"type": "text"}):
        context.dropped.append("response_format")
    schema = {"name": SCHEMA_NAME, "strict": True, "schema": call_schema(chosen)}
    bound = without(body, "tool_choice", "guided_decoding", "parallel_tool_calls")
    return {**bound, "response_format": {"type": "json_schema", "json_schema": schema}}


def call_schema(functions: list[dict[str, Any]]) -> dict[str, Any]:
    """A schema of {"name": ..., "arguments": ...} for any of these functions. Their definitions move to the schema's root."""
    definitions: dict[str, Any] = {}
    calls = []
    for i, function in enumerate(functions):
        parameters = function.get("parameters") or {"type": "object"}
        calls.append(
            {
                "type": "object",
                "properties": {
                    "name": {"const": function.get("name")},
                    "arguments": _moved(parameters, f"f{i}", definitions),
                },
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    schema = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {**schema, "$defs": definitions} if definitions else schema


def _moved(parameters: dict[str, Any], prefix: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """A function's parameters with references that hold below another root."""
    root = without(parameters, "$defs", "definitions", "$schema", "$id")
    own = {**(parameters.get("definitions") or {}), **(parameters.get("$defs") or {})}
    for name, definition in own.items():
        definitions[f"{prefix}_{name}"] = _referring(definition, prefix)
    moved = _referring(root, prefix)
    if moved != root and _refers_to(root, "#"):
        definitions[prefix] = moved
    assert isinstance(moved, dict)
    return moved


def _referring(value: Any, prefix: str) -> Any:
    if isinstance(value, list):
        return [_referring(one, prefix) for one in value]
    if not isinstance(value, dict):
        return value
    changed = {name: _referring(one, prefix) for name, one in value.items()}
    if isinstance(target := value.get("$ref"), str) and target.startswith("#"):
        changed["$ref"] = _target(target, prefix)
    return changed


def _target(target: str, prefix: str) -> str:
    for start in ("#/$defs/", "#/definitions/"):
        if target.startswith(start):
            return f"#/$defs/{prefix}_{target.removeprefix(start)}"
    return f"#/$defs/{prefix}{target[1:]}"


def _refers_to(value: Any, start: str) -> bool:
    """Whether a schema refers to its own root, or to a place below it that is no definition."""
    if isinstance(value, list):
        return any(_refers_to(one, start) for one in value)
    if not isinstance(value, dict):
        return False
    target = value.get("$ref")
    if (
        isinstance(target, str)
        and target.startswith(start)
        and not target.startswith(("#/$defs/", "#/definitions/"))
    ):
        return True
    return any(_refers_to(one, start) for one in value.values())


def _leave_free(body: Body, context: Context) -> Body:
    """Where no schema binds the answer: it is checked, and asked for again."""
    return without(body, "tool_choice") if asked_choice(body, context.api)[0] in _MODES else body


CHOICE_STEPS = (
    Step("tools-withheld", when(Fault.NONE_CHOICE, apis=(Api.CHAT, Api.MESSAGES)), _withhold),
    Step("choice-by-schema", _binds, _bind),
    Step("choice-left-free", when(Fault.CHOICE_REFUSED, apis=(Api.CHAT, Api.MESSAGES)), _leave_free),
)
