"""Messages requests: what Claude Code and others send becomes the conversation, tools and options it means."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise.core.chat import ChatRequest, MediaPart, Message, ReasoningOptions, TextPart, ToolChoice
from edgewise.core.errors import ContextLengthError, EngineDeadError, InvalidRequestError, OverloadedError
from edgewise.protocols.anthropic import parse_count, parse_request
from edgewise.protocols.anthropic_errors import encode_error, error_object, status_of
from edgewise.protocols.anthropic_messages import NO_CALL, NO_RESULT

HI = [{"role": "user", "content": "hi"}]
PUT = {"name": "put", "description": "Writes a file", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}  # fmt: skip
CLOCK = {"name": "clock", "input_schema": {"type": "object"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}


def parse(**fields: Any) -> ChatRequest:
    return parse_request({"max_tokens": 10, "messages": HI, **fields}).chat


def refused(**fields: Any) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        parse(**fields)
    assert caught.value.param and caught.value.param in caught.value.message
    return caught.value.param


def told(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    return [(m.role, m.text) for m in messages]


def conversation(*turns: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in turns]


def use(call_id: str, name: str = "put", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any = None, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, **more}
    return block if content is None else {**block, "content": content}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "cache_control": {"type": "ephemeral", "ttl": "1h"}}


def image() -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


CLAUDE_CODE = {
    "model": "local",
    "messages": conversation(
        ("user", [text("<system-reminder>Today is Monday.</system-reminder>"), text("Create hello.py")]),
        ("system", "Agents: scout, smith"),
    ),
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.9; cch=a1b2;"},
        text("You are a coding agent."),
        text("Be brief."),
    ],
    "tools": [PUT, CLOCK],
    "metadata": {"user_id": '{"device_id":"d","session_id":"s"}'},
    "max_tokens": 32000,
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "stream": True,
}


def test_the_first_request_of_claude_code():
    parsed = parse_request(CLAUDE_CODE)
    chat = parsed.chat
    assert told(chat.messages) == [
        ("system", "You are a coding agent.\nBe brief."),
        ("user", "<system-reminder>Today is Monday.</system-reminder>\nCreate hello.py"),
        ("system", "Agents: scout, smith"),
    ]
    assert [tool.name for tool in chat.tools] == ["put", "clock"]
    assert chat.tools[0].parameters == PUT["input_schema"] and chat.tools[0].path == "tools[0]"
    assert chat.sampling == {"max_tokens": 32000}
    assert chat.reasoning == ReasoningOptions(enabled=True, effort="high")
    assert chat.tool_choice == ToolChoice()
    assert chat.add_generation_prompt and not chat.continue_final_message
    assert chat.stream and parsed.reply.stream
    assert chat.ignored_fields == ("context_management", "x-anthropic-billing-header")


@pytest.mark.parametrize("code", ["a1b2", "c3d4"])
def test_a_billing_line_does_not_reach_the_prompt(code: str):
    line = f"x-anthropic-billing-header: cc_version=9.9; cch={code};"
    assert told(parse(system=[text(line), text("Rest")]).messages)[0] == ("system", "Rest")
    assert told(parse(system=f"{line}\nRest").messages)[0] == ("system", "Rest")
    assert told(parse(system=line).messages) == [("user", "hi")]


@pytest.mark.parametrize("system", [None, "", [], [text("")]])
def test_an_empty_system_is_none(system: Any):
    assert told(parse(system=system).messages) == [("user", "hi")]


def test_a_tool_loop():
    chat = parse(
        tools=[PUT],
        messages=conversation(
            ("user", "Make a.py"),
            (
                "assistant",
                [
                    {"type": "thinking", "thinking": "A file, then.", "signature": ""},
                    text("Writing."),
                    use("t1", path="a.py"),
                ],
            ),
            ("user", [result("t1", [text("done"), text("1 line")]), text("Go on")]),
        ),
    )
    user, assistant, tool, more = chat.messages
    assert (assistant.reasoning, assistant.text) == ("A file, then.", "Writing.")
    assert [(c.id, c.name, c.arguments) for c in assistant.tool_calls] == [("t1", "put", {"path": "a.py"})]
    assert (tool.role, tool.tool_call_id, tool.text) == ("tool", "t1", "done\n1 line")
    assert (more.role, more.text, more.index) == ("user", "Go on", 2)
    assert user.text == "Make a.py" and not chat.ignored_fields


def test_results_of_parallel_calls_follow_the_order_of_the_calls():
    chat = parse(
        messages=conversation(
            ("user", "go"),
            ("assistant", [use("a"), use("b"), use("c")]),
            ("user", [result("c", "3"), result("a", "1")]),
            ("system", "A reminder"),
            ("user", [text("and"), result("b", "2")]),
        )
    )
    assert told(chat.messages) == [
        ("user", "go"),
        ("assistant", ""),
        ("tool", "1"),
        ("tool", "2"),
        ("tool", "3"),
        ("system", "A reminder"),
        ("user", "and"),
    ]
    assert [m.tool_call_id for m in chat.messages if m.role == "tool"] == ["a", "b", "c"]


def test_a_call_without_a_result_is_answered_and_a_result_without_a_call_is_told():
    chat = parse(
        messages=conversation(
            ("user", [result("gone", "the old answer"), text("and now?")]),
            ("assistant", [use("x"), use("y")]),
            ("user", [result("y", "Y"), result("y", "Y again"), text("never mind")]),
        )
    )
    assert told(chat.messages) == [
        ("user", f"{NO_CALL}\nthe old answer\nand now?"),
        ("assistant", ""),
        ("tool", NO_RESULT),
        ("tool", "Y"),
        ("user", f"{NO_CALL}\nY again\nnever mind"),
    ]
    assert [m.tool_call_id for m in chat.messages] == [None, None, "x", "y", None]


def test_a_conversation_that_ends_with_calls_waits_for_them():
    messages = parse(messages=conversation(("user", "go"), ("assistant", [use("x")]))).messages
    assert told(messages) == [("user", "go"), ("assistant", "")]


@pytest.mark.parametrize(
    ("content", "is_error", "expected"),
    [
        ("ok", False, "ok"),
        (None, False, ""),
        ([], False, ""),
        ("", True, "Error"),
        ("no such file", True, "Error: no such file"),
        ("<tool_use_error>no</tool_use_error>", True, "<tool_use_error>no</tool_use_error>"),
        ([text("a"), image(), text("b")], False, "a\n[image (image/png) left out: this model reads text only]\nb"),
        ([{"type": "tool_reference", "tool_name": "put"}], False, "[the tool put can be called]"),
        ([{"type": "hologram"}], False, "[hologram left out: this model reads text only]"),
        (
            [{"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}],
            False,
            "T\nwords",
        ),
        (
            [{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}}],
            False,
            "[document (application/pdf) left out: this model reads text only]",
        ),
        (
            [{"type": "document", "source": {"type": "content", "content": [text("page"), image()]}}],
            False,
            "page\n[image (image/png) left out: this model reads text only]",
        ),
    ],
)  # fmt: skip
def test_tool_results(content: Any, is_error: bool, expected: str):
    answer = result("t", content, is_error=is_error)
    messages = parse(messages=conversation(("user", "x"), ("assistant", [use("t")]), ("user", [answer])))
    assert told(messages.messages)[2:] == [("tool", expected)]


def test_documents_of_text_are_read_and_search_results_too():
    blocks = [
        {"type": "document", "context": "of July", "source": {"type": "text", "media_type": "text/plain", "data": "D"}},
        {"type": "search_result", "title": "S", "source": "http://s", "content": [text("found")]},
    ]  # fmt: skip
    assert told(parse(messages=conversation(("user", blocks))).messages) == [
        ("user", "of July\nD\nS\nhttp://s\nfound")
    ]


@pytest.mark.parametrize(
    "block",
    [
        image(),
        {"type": "image", "source": {"type": "url", "url": "file:///etc/hostname"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "x"}},
        {"type": "document", "source": {"type": "content", "content": [image()]}},
    ],
)
def test_media_is_kept_with_its_place(block: dict[str, Any]):
    (message,) = parse(messages=conversation(("user", [text("see"), block]))).messages
    assert message.parts == (TextPart("see"), MediaPart(block["type"], block, "messages[0].content[1]"))


def test_thinking_comes_back_in_any_spelling_and_servers_blocks_are_passed_over():
    chat = parse(
        messages=conversation(
            ("user", "x"),
            (
                "assistant",
                [
                    {"type": "thinking", "thinking": "one", "signature": "EqQBCg=="},
                    {"type": "redacted_thinking", "data": "opaque"},
                    {"type": "thinking", "thinking": "two"},
                    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                    text("found"),
                ],
            ),
            ("user", "y"),
        )
    )
    assert chat.messages[1].reasoning == "one\ntwo" and chat.messages[1].text == "found"
    assert chat.ignored_fields == ("redacted_thinking", "server_tool_use", "web_search_tool_result")


def test_a_trailing_assistant_turn_is_continued():
    chat = parse(messages=[*HI, {"role": "assistant", "content": "The list is:"}])
    assert chat.continue_final_message and not chat.add_generation_prompt
    chat = parse(messages=[*HI, {"role": "assistant", "content": [text("")]}])
    assert told(chat.messages) == [("user", "hi")] and chat.add_generation_prompt


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "banana", "content": "x"}]}, "messages[0].role"),
        ({"messages": [*HI, {"role": "user"}]}, "messages[1].content"),
        ({"messages": conversation(("user", [{"type": "text"}]))}, "messages[0].content[0].text"),
        ({"messages": conversation(("user", [{"type": "riddle"}]))}, "messages[0].content[0].type"),
        ({"messages": conversation(("user", [use("t")]))}, "messages[0].content[0].type"),
        ({"messages": conversation(("assistant", [result("t")]))}, "messages[0].content[0].type"),
        ({"messages": conversation(("user", [{"type": "tool_result"}]))}, "messages[0].content[0].tool_use_id"),
        ({"messages": conversation(("assistant", [{"type": "tool_use", "id": "t"}]))}, "messages[0].content[0].name"),
        ({"messages": conversation(("assistant", [use("t") | {"input": 3}]))}, "messages[0].content[0].input"),
        ({"system": [image()]}, "system[0].type"),
        ({"system": 3}, "system"),
        ({"temperature": -1}, "temperature"),
        ({"stop_sequences": [3]}, "stop_sequences[0]"),
        ({"stop_sequences": ["a", ""]}, "stop_sequences[1]"),
        ({"stop_sequences": ["a"] * 1000}, "stop_sequences"),
        ({"tools": [{"name": "two words", "input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "x"}]}, "tools[0].input_schema"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": [CLOCK, CLOCK]}, "tools[1].name"),
        ({"tools": [CLOCK], "tool_choice": {"type": "tool", "name": "put"}}, "tool_choice.name"),
        ({"tools": [SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}}, "tool_choice.name"),
        ({"tools": [SEARCH], "tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [CLOCK], "tool_choice": {"type": "must"}}, "tool_choice.type"),
        ({"tools": [CLOCK], "tool_choice": "auto"}, "tool_choice"),
        ({"thinking": {"type": "loud"}}, "thinking.type"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"chat_template": "{{ x }}"}, "chat_template"),
    ],
)  # fmt: skip
def test_what_is_refused(fields: dict[str, Any], param: str):
    assert refused(**fields) == param


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, ToolChoice()),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice(parallel=False)),
        ({"type": "none"}, ToolChoice("none")),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required", parallel=False)),
        ({"type": "tool", "name": "clock"}, ToolChoice("required", ("clock",), named=True)),
    ],
)
def test_tool_choice(choice: dict[str, Any], expected: ToolChoice):
    assert parse(tools=[PUT, CLOCK], tool_choice=choice).tool_choice == expected


def test_tools_of_anthropic_s_own_are_left_out_and_named():
    bash = {"type": "bash_20250124", "name": "bash"}
    computer = {
        "type": "computer_20250124",
        "name": "computer",
        "display_width_px": 1,
        "display_height_px": 1,
    }
    chat = parse(tools=[SEARCH, {**CLOCK, "type": "custom", "strict": True}, bash, computer, SEARCH])
    assert [(tool.name, tool.strict) for tool in chat.tools] == [("clock", True)]
    assert chat.ignored_fields == (
        "tools.web_search_20250305",
        "tools.bash_20250124",
        "tools.computer_20250124",
    )


def test_a_schema_reaches_the_model_word_for_word():
    schema = {
        "properties": {
            "ids": {"type": ["array", "null"], "items": {"anyOf": [{"const": "all"}]}},
            "any": True,
        },
        "additionalProperties": False,
    }
    assert parse(tools=[{"name": "f", "input_schema": schema}]).tools[0].parameters == schema


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ReasoningOptions()),
        ({"thinking": {"type": "disabled"}}, ReasoningOptions(enabled=False)),
        ({"thinking": {"type": "adaptive"}}, ReasoningOptions(enabled=True)),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
            ReasoningOptions(enabled=True, budget_tokens=2048),
        ),
        (
            {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "max"}},
            ReasoningOptions(enabled=True, effort="max", show=False),
        ),
        ({"enable_thinking": True, "output_config": {"effort": "low"}}, ReasoningOptions(True, "low")),
        ({"thinking_budget": 64}, ReasoningOptions(True, budget_tokens=64)),
        ({"thinking_budget": 0}, ReasoningOptions(False, budget_tokens=0)),
        ({"reasoning_effort": "high"}, ReasoningOptions(True, "high")),
        ({"reasoning": {"effort": "none"}}, ReasoningOptions(False, "none")),
    ],
)
def test_thinking(fields: dict[str, Any], expected: ReasoningOptions):
    assert parse(**fields).reasoning == expected


@pytest.mark.parametrize("wanted", [True, False])
def test_the_template_s_own_switch_goes_first(wanted: bool):
    chat = parse(thinking={"type": "adaptive"}, chat_template_kwargs={"enable_thinking": wanted})
    assert chat.reasoning.enabled is wanted


def test_effort_alone_does_not_turn_thinking_on():
    chat = parse(output_config={"effort": "high"})
    assert chat.reasoning == ReasoningOptions() and chat.ignored_fields == ("output_config.effort",)


@pytest.mark.parametrize("where", ["output_config", "output_format"])
def test_structured_output(where: str):
    form = {"type": "json_schema", "schema": {"type": "object"}}
    chat = parse(**({"output_format": form} if where == "output_format" else {where: {"format": form}}))
    assert chat.output_format is not None
    assert (chat.output_format.kind, chat.output_format.value) == ("json_schema", {"type": "object"})
    assert chat.output_format.strict and chat.output_format.param.startswith(where)


def test_sampling_and_unknown_fields():
    chat = parse(
        temperature=0.5, top_p=0.9, top_k=3, stop_sequences=["END."], metadata={}, mcp_servers=[], nonsense=1
    )
    assert chat.sampling == {
        "max_tokens": 10,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "stop": ["END."],
    }
    assert chat.ignored_fields == ("mcp_servers", "nonsense")


def test_counting_asks_for_nothing_about_the_answer():
    body = {"messages": HI, "system": "S", "tools": [PUT]}
    counted = parse_count(body).chat
    asked = parse_request({**body, "max_tokens": 5, "stop_sequences": ["x"]}).chat
    assert counted.messages == asked.messages and counted.tools == asked.tools
    assert counted.sampling == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=8), x, max_size=3),
    max_leaves=8,
)
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image", "document"])},
    optional=dict.fromkeys(
        ("text", "id", "name", "input", "tool_use_id", "content", "source", "is_error"), JSON
    ),
)


@given(st.lists(st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system"]), "content": st.lists(BLOCK, max_size=4) | JSON}), max_size=4))  # fmt: skip
def test_any_conversation_is_read_or_refused_by_name(messages: list[Any]):
    try:
        chat = parse(messages=messages)
    except InvalidRequestError as error:
        assert error.param
    else:
        assert chat.messages


IDS = st.sampled_from("abc")
TURN = st.one_of(
    st.tuples(st.just("assistant"), st.lists(IDS.map(use), max_size=3)),
    st.tuples(st.just("user"), st.lists(st.tuples(IDS, st.integers(0, 999)), max_size=3)),
)


@given(st.lists(TURN, min_size=1, max_size=6))
def test_every_result_is_told_once_and_every_call_has_one_result(turns: list[tuple[str, list[Any]]]):
    sent: list[str] = []
    wire = []
    for role, items in turns:
        if role == "user":
            marks = [f"<{call_id}:{number}:{len(sent) + i}>" for i, (call_id, number) in enumerate(items)]
            sent += marks
            items = [result(call_id, mark) for (call_id, _), mark in zip(items, marks, strict=True)]
        wire.append({"role": role, "content": items})
    messages = parse(messages=[*HI, *wire, {"role": "user", "content": "end"}]).messages
    told_text = "\n".join(m.text for m in messages)
    assert all(told_text.count(mark) == 1 for mark in sent)
    for place, message in enumerate(messages):
        following = messages[place + 1 : place + 1 + len(message.tool_calls)]
        assert [m.tool_call_id for m in following] == [call.id for call in message.tool_calls]
        assert all(m.role == "tool" for m in following)
    assert sum(m.role == "tool" for m in messages) == sum(len(m.tool_calls) for m in messages)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequestError("bad", param="x"), 400, "invalid_request_error"),
        (InvalidRequestError("who?", code="model_not_found"), 404, "not_found_error"),
        (OverloadedError("later"), 529, "overloaded_error"),
        (EngineDeadError("broken"), 500, "api_error"),
        (ZeroDivisionError("secret"), 500, "api_error"),
    ],
)
def test_errors(error: Exception, status: int, kind: str):
    body = encode_error(error)
    assert status_of(error) == status
    assert body["type"] == "error" and body["error"]["type"] == kind and body["request_id"].startswith("req_")
    assert "secret" not in body["error"]["message"]


def test_a_prompt_too_long_is_said_in_the_words_clients_look_for():
    error = ContextLengthError(prompt_tokens=9000, max_model_len=8192)
    assert encode_error(error)["error"]["message"] == "prompt is too long: 9000 tokens > 8192 maximum"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (502, "api_error"),
    ],
)
def test_errors_of_http(status: int, kind: str):
    assert error_object("m", status)["error"] == {"type": kind, "message": "m"}
