"""The 'model' behind the imitation of Edge-LLM: a real template, a plain tokenizer, and answers by rule or by script.

The prompt is really rendered from the messages, so a prompt's token count tells what a fault does to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jinja2

from tests.support.edge_llm_rules import RefusedError, Rules, invalid

_TEMPLATE = """\
{%- if tools %}<|im_start|>system
{{ messages[0].content ~ '\n\n' if messages[0].role == 'system' else '' }}# Tools
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role in ('system', 'developer') %}
{%- if not loop.first %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% elif message.role == 'developer' %}<|im_start|>developer
{{ message.content }}<|im_end|>
{% endif %}
{%- elif message.role == 'user' %}<|im_start|>user
{{ message.content }}<|im_end|>
{% elif message.role == 'assistant' %}<|im_start|>assistant
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
<function={{ call.function.name }}>
{%- if call.function.arguments is mapping %}
{%- for name, value in call.function.arguments.items() %}
<parameter={{ name }}>
{{ value if value is string else value | tojson }}
</parameter>
{%- endfor %}
{%- endif %}
</function>
</tool_call>
{%- endfor %}<|im_end|>
{% elif message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}{{ raise_exception('Unexpected message role.') }}
{%- endif %}
{%- endfor %}<|im_start|>assistant
{% if not enable_thinking %}<think>

</think>

{% endif %}"""

_TOKEN = re.compile(r"<\|\w+\|>|</?\w+>|\w+|\s+|[^\w\s]")
END_MARK = "<|endoftext|>"


def tokens_of(text: str) -> list[str]:
    """Text in pieces that stand for tokens; joined they are the text again."""
    return _TOKEN.findall(text)


def _raise(message: str) -> None:
    raise RefusedError(500, "engine_error", f"Failed to apply chat template: raise_exception: {message}")


_ENVIRONMENT = jinja2.Environment(autoescape=False)
_ENVIRONMENT.globals["raise_exception"] = _raise
_COMPILED = _ENVIRONMENT.from_string(_TEMPLATE)


def flat_content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(block.get("text", f"<{block.get('type')}>") for block in content)
    return content if isinstance(content, str) else ("" if content is None else json.dumps(content))


def render(body: dict[str, Any], rules: Rules) -> str:
    """The prompt of a chat body. Raises RefusedError 500 where the template raises."""
    if body.get("apply_chat_template") is False:
        return "".join(flat_content(message.get("content")) for message in body["messages"])
    messages = [{**one, "content": flat_content(one.get("content"))} for one in body["messages"]]
    _check_systems(messages, rules)
    if rules.late_system_dropped:
        messages = [one for i, one in enumerate(messages) if i == 0 or one.get("role") != "system"]
    for message in messages:
        if message.get("function_call"):
            message["tool_calls"] = [{"function": message["function_call"]}]
        if message.get("tool_calls"):
            message["tool_calls"] = [_call(call, rules) for call in message["tool_calls"]]
    return _COMPILED.render(messages=messages, tools=body.get("tools"), enable_thinking=thinks(body, rules))


def _check_systems(messages: list[dict[str, Any]], rules: Rules) -> None:
    is_system = [one.get("role") == "system" for one in messages]
    ahead = is_system.index(False) if False in is_system else len(is_system)
    if rules.late_system_raises and any(is_system[ahead:]):
        _raise("System message must be at the beginning.")
    if rules.several_system_raises and sum(is_system) > 1:
        _raise("System message must be at the beginning.")
    if rules.developer_role_raises and any(one.get("role") == "developer" for one in messages):
        _raise("Unexpected message role.")


def _call(call: dict[str, Any], rules: Rules) -> dict[str, Any]:
    function = call["function"]
    arguments = None if rules.arguments_dropped else function.get("arguments")
    if isinstance(arguments, str) and not rules.string_arguments_render_empty:
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {"arguments": arguments}
    return {"function": {"name": function["name"], "arguments": arguments}}


def thinks(body: dict[str, Any], rules: Rules) -> bool:
    if rules.always_thinks:
        return True
    kwargs = body.get("chat_template_kwargs") or {}
    return bool(kwargs.get("enable_thinking", body.get("enable_thinking", rules.thinks_by_default)))


@dataclass(frozen=True)
class Called:
    """A call the model makes. `arguments` is its text, which a script may make malformed."""

    name: str
    arguments: str = "{}"


@dataclass(frozen=True)
class Said:
    """One answer of the model, before limits and stop strings."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Called, ...] = field(default_factory=tuple)


Script = Callable[[dict[str, Any], str], Said]
"""(chat body, prompt) -> what the model says."""

_COUNTING = " ".join(str(number) for number in range(1, 400))


def by_rule(body: dict[str, Any], prompt: str) -> Said:
    """A model that follows its tools: asked something by a user it calls the first one, twice when asked for two things.

    A greeting gets text, and so does a tool's result. Counting is for tests of limits and stop strings.
    """
    last = body["messages"][-1]
    asked = flat_content(last.get("content"))
    tools = body.get("tools") or []
    choice = body.get("tool_choice", "auto")
    lower = asked.lower()
    if last.get("role") != "tool" and tools and choice != "none" and "hello" not in lower:
        tool = named(tools, choice) or tools[0]
        times = 2 if any(word in lower for word in (" both", " two ", "parallel", "twice")) else 1
        return Said(calls=tuple(call_of(tool, number) for number in range(times)))
    if "count" in lower or "long story" in lower:
        return Said(_COUNTING)
    if last.get("role") == "tool":
        return Said(f"The tool said: {asked}")
    return Said("Hello there, how can I help you today?")


def named(tools: list[dict[str, Any]], choice: Any) -> dict[str, Any] | None:
    name = (choice.get("function") or {}).get("name") if isinstance(choice, dict) else choice
    return next((tool for tool in tools if tool["function"]["name"] == name), None)


def call_of(tool: dict[str, Any], number: int = 0) -> Called:
    function = tool["function"]
    value = example(function.get("parameters") or {}, number)
    return Called(function["name"], json.dumps(value if isinstance(value, dict) else {}))


def example(schema: dict[str, Any], number: int = 0) -> Any:
    """A value that a schema of the plain kind allows."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][number % len(schema["enum"])]
    if schema.get("anyOf") or schema.get("oneOf"):
        return example((schema.get("anyOf") or schema["oneOf"])[0], number)
    kind = schema.get("type", "object")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            wanted = schema.get("required") or list(schema.get("properties") or {})
            return {name: example((schema.get("properties") or {}).get(name, {}), number) for name in wanted}
        case "array":
            return [example(schema.get("items") or {"type": "string"}, number)]
        case "integer" | "number":
            return schema.get("minimum", number + 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return f"example {number}"


def guided(body: dict[str, Any], rules: Rules) -> str | None:
    """What a guide makes of the answer, where the request has one."""
    guide = body.get("guided_decoding") or {}
    form = body.get("response_format") or {}
    if guide.get("choice"):
        return str(guide["choice"][0])
    schema = guide.get("json_schema")
    if form.get("type") == "json_schema":
        schema = (form.get("json_schema") or {}).get("schema")
        if not isinstance(schema, dict):
            raise invalid("json_schema needs a schema", "response_format")
    if guide.get("json_object") or form.get("type") == "json_object":
        schema = schema or {}
    if isinstance(schema, str):
        schema = json.loads(schema)
    return None if schema is None or rules.schema_ignored else json.dumps(example(schema))


def answer(body: dict[str, Any], prompt: str, rules: Rules, script: Script) -> Said:
    """What the model says under the request's choices and guides, as far as the rules enforce them."""
    tools, choice = body.get("tools") or [], body.get("tool_choice", "auto")
    if (text := guided(body, rules)) is not None:
        return Said(text, "I think so." if thinks(body, rules) else "")
    free = dict(body)
    if (choice == "none" and rules.none_ignored) or (
        choice not in ("auto", "none") and rules.required_ignored and choice == "required"
    ):
        free["tool_choice"] = "auto"
    said = script(free, prompt)
    calls, tool = said.calls, named(tools, choice)
    if choice == "required" and not rules.required_ignored and tools and not calls:
        calls = (call_of(tools[0]),)
    if tool is not None and not rules.named_ignored:
        calls = (call_of(tool),)
    if (
        tool is not None
        and rules.named_ignored
        and "hello" in flat_content(body["messages"][-1].get("content")).lower()
    ):
        calls = ()
    if choice == "none" and not rules.none_ignored:
        calls = ()
    if body.get("parallel_tool_calls") is False and not rules.parallel_ignored:
        calls = calls[:1]
    thinking = thinks(body, rules)
    reasoning = (said.reasoning or "Let me think about it.") if thinking else ""
    return Said("" if calls and not said.calls else said.text, reasoning, calls)
