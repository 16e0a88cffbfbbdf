"""One case for every rule of shaping: a body that needs it, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgewise.gateway.kinds.edge_llm import CHAT_FIELDS
from edgewise.gateway.profile import Api, Fault, Kind, ModelCard, Profile

ARGUMENTS = {"path": "fizz.py", "content": "x = 1\n"}
TEXT_ARGUMENTS = '{"path": "fizz.py", "content": "x = 1\\n"}'
PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
}
TOOL = {"type": "function", "function": {"name": "write_file", "parameters": PARAMETERS}}
OTHER = {"type": "function", "function": {"name": "stop"}}
USER = {"role": "user", "content": "Create fizz.py."}


def call(arguments: Any, call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "write_file", "arguments": arguments}}


def turn(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def result(call_id: str = "c1", text: str = "wrote fizz.py") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def system(text: str, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": text}


def profile(*faults: Fault, kind: Kind = Kind.OPENAI, **more: Any) -> Profile:
    return Profile(kind, faults=frozenset(faults), **more)


@dataclass(frozen=True)
class Case:
    rule: str
    profile: Profile
    body: dict[str, Any]
    changed: dict[str, Any]  # fields as they are afterwards; None: gone
    api: Api = Api.CHAT
    dropped: tuple[str, ...] = ()
    model: str = ""


def messages(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(turns), **more}


def _format(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}


def _bound(schema: dict[str, Any]) -> dict[str, Any]:
    return _format("tool_call", schema)


def _schema_of(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


EDGE = profile(kind=Kind.EDGE_LLM)
REQUIRED = profile(Fault.REQUIRED_CHOICE, Fault.NAMED_CHOICE, kind=Kind.VLLM)
SWITCHED = {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}

CASES = (
    Case("model-name", profile(), messages(USER, model="gpt-4o"), {"model": "own"}, model="own"),
    Case(
        "one-limit",
        profile(fields={Api.CHAT: frozenset(("messages", "max_tokens"))}),
        messages(USER, max_completion_tokens=5),
        {"max_tokens": 5, "max_completion_tokens": None},
    ),
    Case(
        "one-limit",
        EDGE,
        messages(USER, max_completion_tokens=5, max_tokens=7),
        {"max_completion_tokens": 5, "max_tokens": None},
    ),
    Case(
        "refused-values",
        EDGE,
        messages(
            USER,
            presence_penalty=0.5,
            tool_choice="auto",
            tools=[],
            seed=None,
            stream_options={"include_usage": True, "x": 1},
            chat_template_kwargs={"enable_thinking": True, "lang": "de"},
        ),
        {
            "presence_penalty": None,
            "tool_choice": None,
            "tools": None,
            "seed": None,
            "stream_options": {"include_usage": True},
            "chat_template_kwargs": {"enable_thinking": True},
        },
        dropped=("presence_penalty", "stream_options.x", "chat_template_kwargs.lang"),
    ),
    Case(
        "unknown-fields",
        profile(fields={Api.CHAT: CHAT_FIELDS}),
        messages(USER, user="me", store=True, metadata=None, temperature=0.5),
        {"user": None, "store": None, "metadata": None},
        dropped=("user", "store"),
    ),
    Case(
        "unknown-fields",
        profile(Fault.UNKNOWN_FIELDS),
        messages(USER, top_k=5),
        {"top_k": None},
        dropped=("top_k",),
    ),
    Case(
        "limit-clamped",
        profile(Fault.MAX_TOKENS, models=(ModelCard("m", window=1000),)),
        messages(USER, max_tokens=4000),
        {"max_tokens": 979},
    ),
    Case(
        "limit-stated",
        profile(kind=Kind.EDGE_LLM, models=(ModelCard("m", window=65536),)),
        messages(USER),
        {"max_tokens": 65515},
    ),
    Case(
        "functions-to-tools",
        profile(kind=Kind.VLLM),
        messages(
            USER,
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "1"},
            functions=[{"name": "f"}],
            function_call={"name": "f"},
            **SWITCHED,
        ),
        {
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "content": "1", "tool_call_id": "call_1"},
            ],
            "functions": None,
            "function_call": None,
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "parallel_tool_calls": False,
        },
    ),
    Case(
        "developer-to-system",
        profile(Fault.DEVELOPER_ROLE),
        messages(system("Be brief.", "developer"), USER),
        {"messages": [system("Be brief."), USER]},
    ),
    Case(
        "system-gathered",
        profile(Fault.SEVERAL_SYSTEM),
        messages(system("a"), system("b", "developer"), USER),
        {"messages": [system("a\n\nb"), USER]},
    ),
    Case(
        "system-gathered",
        profile(Fault.LATE_SYSTEM),
        messages(USER, {"role": "system", "content": [{"type": "text", "text": "late"}]}),
        {"messages": [system("late"), USER]},
    ),
    Case(
        "arguments-to-objects",
        profile(Fault.STRING_ARGUMENTS),
        messages(USER, turn(call(TEXT_ARGUMENTS)), result()),
        {"messages": [USER, turn(call(ARGUMENTS)), result()]},
    ),
    Case(
        "arguments-to-objects",
        profile(Fault.STRING_ARGUMENTS),
        messages(USER, turn(call('{"path": "a')), result()),
        {"messages": [USER, turn(call({"path": "a"})), result()]},
    ),
    Case(
        "arguments-to-strings",
        profile(Fault.OBJECT_ARGUMENTS),
        messages(USER, turn(call(ARGUMENTS)), result()),
        {"messages": [USER, turn(call(TEXT_ARGUMENTS)), result()]},
    ),
    Case(
        "call-ids",
        EDGE,
        messages(USER, turn(call({}, ""), call({}, "x")), result("x"), result("lost"), result("more", "hm")),
        {
            "messages": [
                USER,
                turn(call({}, "call_1"), call({}, "x")),
                result("x"),
                result("call_1"),
                {"role": "user", "content": "hm"},
            ]
        },
    ),
    Case(
        "empty-calls",
        EDGE,
        messages(USER, {"role": "assistant", "content": "hi", "tool_calls": []}, USER),
        {"messages": [USER, {"role": "assistant", "content": "hi"}, USER]},
    ),
    Case(
        "structured-output",
        EDGE,
        messages(USER, grammar='root ::= "yes" | "no"'),
        {"grammar": None, "guided_decoding": {"ebnf": 'root ::= "yes" | "no"'}},
    ),
    Case(
        "structured-output",
        EDGE,
        messages(USER, json_schema={"type": "object"}),
        {"json_schema": None, "response_format": _format("answer", {"type": "object"})},
    ),
    Case(
        "structured-output",
        profile(kind=Kind.VLLM),
        messages(USER, guided_decoding={"regex": "a+"}, **SWITCHED),
        {"guided_decoding": None, "structured_outputs": {"regex": "a+"}},
    ),
    Case(
        "structured-output",
        profile(kind=Kind.LLAMA),
        messages(USER, guided_choice=["yes", 'n"o'], **SWITCHED),
        {"guided_choice": None, "grammar": 'root ::= "yes" | "n\\"o"'},
    ),
    Case(
        "structured-output",
        profile(),
        messages(USER, guided_regex="a+"),
        {"guided_regex": None},
        dropped=("guided_regex",),
    ),
    Case(
        "tools-withheld",
        profile(Fault.NONE_CHOICE),
        messages(USER, tools=[TOOL], tool_choice="none"),
        {"tools": None, "tool_choice": None},
    ),
    Case(
        "choice-by-schema",
        REQUIRED,
        messages(USER, tools=[TOOL], tool_choice="required", **SWITCHED),
        {"tool_choice": None, "response_format": _bound(_schema_of("write_file", PARAMETERS))},
    ),
    Case(
        "choice-by-schema",
        REQUIRED,
        messages(
            USER,
            tools=[TOOL, OTHER],
            tool_choice={"type": "function", "function": {"name": "stop"}},
            response_format={"type": "json_object"},
            **SWITCHED,
        ),
        {"tool_choice": None, "response_format": _bound(_schema_of("stop", {"type": "object"}))},
        dropped=("response_format",),
    ),
    Case(
        "choice-left-free",
        profile(Fault.CHOICE_REFUSED),
        messages(USER, tools=[TOOL], tool_choice="required"),
        {"tool_choice": None},
    ),
    Case(
        "choice-left-free",
        profile(Fault.CHOICE_REFUSED),
        messages(USER, tools=[TOOL], tool_choice={"type": "tool", "name": "write_file"}),
        {"tool_choice": None},
        api=Api.MESSAGES,
    ),
    Case(
        "thinking",
        profile(kind=Kind.LLAMA),
        messages(USER),
        {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
    ),
    Case(
        "thinking",
        profile(kind=Kind.VLLM),
        messages(USER, reasoning_effort="high"),
        {"chat_template_kwargs": {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"}},
    ),
    Case(
        "thinking",
        EDGE,
        messages(USER, thinking={"type": "enabled", "budget_tokens": 5}, thinking_budget=7),
        {"enable_thinking": True, "thinking": None, "thinking_budget": None},
        dropped=("thinking_budget",),
    ),
    Case("thinking", profile(), messages(USER, enable_thinking=True), {"reasoning_effort": "medium"}),
    Case(
        "billing-line",
        profile(),
        messages(USER, system="x-anthropic-billing-header: cc=1; cch=a1;\nBe brief."),
        {"system": "Be brief."},
        api=Api.MESSAGES,
    ),
    Case(
        "billing-line",
        profile(),
        messages(
            USER,
            system=[
                {"type": "text", "text": "x-anthropic-billing-header: cc=1;"},
                {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
            ],
        ),
        {"system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
        api=Api.COUNT_TOKENS,
    ),
    Case("thinking", profile(Fault.THINKING_SWITCH), messages(USER), SWITCHED),
    Case("thinking", profile(Fault.THINKING_SWITCH), messages(USER), SWITCHED, api=Api.MESSAGES),
    Case(
        "thinking",
        profile(Fault.THINKING_SWITCH, kind=Kind.EDGE_LLM),
        messages(USER),
        {"enable_thinking": False},
    ),
    Case(
        "thinking",
        profile(kind=Kind.LLAMA),
        messages(USER, thinking={"type": "adaptive"}),
        {"chat_template_kwargs": {"enable_thinking": True, "thinking": True}},
        api=Api.MESSAGES,
    ),
    Case(
        "thinking",
        EDGE,
        messages(USER, thinking={"type": "adaptive"}),
        {"thinking": {"type": "enabled"}},
        api=Api.MESSAGES,
    ),
    Case(
        "system-to-top",
        EDGE,
        messages(USER, system("late"), system="first"),
        {
            "messages": [USER],
            "system": [{"type": "text", "text": "first"}, {"type": "text", "text": "late"}],
        },
        api=Api.MESSAGES,
    ),
    Case(
        "blocks-as-text",
        EDGE,
        messages(
            {
                "role": "user",
                "content": [
                    {"type": "document", "source": {"type": "text", "data": "words"}},
                    {"type": "odd"},
                ],
            }
        ),
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "words"},
                        {"type": "text", "text": '{"type": "odd"}'},
                    ],
                }
            ]
        },
        api=Api.MESSAGES,
    ),
)
