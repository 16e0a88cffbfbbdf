"""Responses requests: input items, tools, choices and options, as Codex and OpenAI's packages send them."""

from __future__ import annotations

from typing import Any

import pytest

from edgewise.core.chat import CUSTOM_SCHEMA, MediaPart, Message, ReasoningOptions, ToolCall, ToolChoice
from edgewise.core.errors import InvalidRequestError
from edgewise.core.grammar import OutputFormat
from edgewise.protocols.responses import ParsedResponse, parse_request
from edgewise.protocols.responses_input import EARLIER_INDEX, carry_reasoning
from edgewise.protocols.responses_tools import flat_name

SCHEMA = {"type": "object", "properties": {"cmd": {"type": "string"}}}
SHELL = {"type": "function", "name": "shell", "parameters": SCHEMA, "strict": False}
NOTES = {
    "type": "namespace",
    "name": "mcp__notes",
    "description": "Notes.",
    "tools": [
        {"type": "function", "name": "add", "description": "Add one.", "parameters": SCHEMA},
        {"type": "function", "name": "list", "parameters": {"type": "object", "properties": {}}},
    ],
}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edit files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'},
}


class Before:
    """Earlier responses by id."""

    def __init__(self, **responses: list[dict[str, Any]]) -> None:
        self.responses = responses

    def context_of(self, response_id: str) -> list[dict[str, Any]] | None:
        return self.responses.get(response_id)

    def item(self, item_id: str) -> dict[str, Any] | None:
        items = (item for items in self.responses.values() for item in items)
        return next((item for item in items if item.get("id") == item_id), None)


def parse(*items: Any, earlier: Before | None = None, **fields: Any) -> ParsedResponse:
    return parse_request({"input": list(items), **fields}, earlier)


def messages(*items: Any, **fields: Any) -> tuple[Message, ...]:
    return parse(*items, **fields).chat.messages


def refused(**fields: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        parse_request({"input": "hi", **fields})
    return caught.value


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call(call_id: str, name: str = "shell", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def result(call_id: str, output: Any, kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": output}


def test_text_is_one_user_message():
    parsed = parse_request({"input": "ping", "model": "m"})
    (message,) = parsed.chat.messages
    assert (message.role, message.text, message.index) == ("user", "ping", 0)
    assert parsed.chat.model == "m" and parsed.reply.store and not parsed.chat.stream


def test_every_way_to_write_a_message():
    written = messages(
        {"role": "developer", "content": "easy"},
        user("typed"),
        {"type": "message", "role": "system", "content": [{"type": "text", "text": "a"}, "b"]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        instructions="be brief",
    )
    assert [(m.role, m.text, m.index) for m in written] == [
        ("system", "be brief", -1),
        ("developer", "easy", 0),
        ("user", "typed", 1),
        ("system", "a\nb", 2),
        ("assistant", "no", 3),
    ]


def test_the_items_of_a_response_are_one_turn():
    turn, first, second, after = messages(
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
        },
        said("Looking."),
        call("c1", arguments='{"cmd":"ls"}'),
        call("c2", arguments={"cmd": "pwd"}),
        result("c1", "a.py"),
        result("c2", None),
        said("Done."),
    )
    assert (turn.role, turn.text, turn.reasoning) == ("assistant", "Looking.", "hm")
    assert turn.tool_calls == (
        ToolCall("c1", "shell", '{"cmd":"ls"}'),
        ToolCall("c2", "shell", {"cmd": "pwd"}),
    )
    assert [(m.role, m.tool_call_id, m.text) for m in (first, second)] == [
        ("tool", "c1", "a.py"),
        ("tool", "c2", ""),
    ]
    assert (after.role, after.text, after.tool_calls) == ("assistant", "Done.", ())


def test_text_between_calls_does_not_part_them_from_their_results():
    turn, *results = messages(
        said("A"), call("c1"), said("B"), call("c2"), result("c1", "1"), result("c2", "2")
    )
    assert turn.text == "A\nB" and [c.id for c in turn.tool_calls] == ["c1", "c2"]
    assert [m.tool_call_id for m in results] == ["c1", "c2"]


def test_two_messages_in_a_row_stay_two():
    assert [m.text for m in messages(said("A"), said("B"))] == ["A", "B"]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"content": [{"type": "reasoning_text", "text": "a"}], "summary": []}, "a"),
        (
            {"summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]},
            "a\n\nb",
        ),
        ({"summary": [], "encrypted_content": carry_reasoning("käse\n")}, "käse\n"),
        (
            {
                "summary": [{"type": "summary_text", "text": "s"}],
                "encrypted_content": carry_reasoning("whole"),
            },
            "whole",
        ),
    ],
)
def test_reasoning_comes_back_in_every_spelling(item: dict[str, Any], text: str):
    (turn,) = messages({"type": "reasoning", **item}, call("c1"))
    assert turn.reasoning == text and len(turn.tool_calls) == 1


def test_reasoning_of_another_server_is_noted_and_left_out():
    parsed = parse({"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}, said("Hi"))
    assert [m.reasoning for m in parsed.chat.messages] == [None]
    assert "encrypted_content of another server" in parsed.chat.ignored_fields


def test_outputs_of_text_and_images():
    parts = [
        {"type": "input_text", "text": "saved"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
    ]
    _, shown = messages(call("c1"), result("c1", parts))
    assert shown.parts[0].text == "saved"
    assert "image" in shown.parts[1].text and "AAAA" not in shown.text


@pytest.mark.parametrize(
    ("output", "text"),
    [({"content": "bad", "success": False}, "bad"), ({"x": 1}, '{"x":1}'), ([], ""), (["a"], "a")],
)
def test_other_shapes_of_outputs(output: Any, text: str):
    assert messages(call("c1"), result("c1", output))[1].text == text


def test_custom_calls_in_the_history_are_what_the_model_wrote():
    turn, shown = messages(
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": 'a "b"\n東'},
        result("c1", "ok", "custom_tool_call_output"),
        tools=[PATCH],
    )
    assert turn.tool_calls == (ToolCall("c1", "apply_patch", '{"input":"a \\"b\\"\\n東"}'),)
    assert (shown.role, shown.tool_call_id, shown.text) == ("tool", "c1", "ok")


def test_no_output_is_lost_whatever_its_type():
    turn, shell, turn2, other, mcp_turn, mcp, new = messages(
        {"type": "local_shell_call", "call_id": "c1", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "c1", "output": "x"},
        {"type": "apply_patch_call", "call_id": "c2", "operation": {"type": "delete_file", "path": "a"}},
        result("c2", "gone", "apply_patch_call_output"),
        {
            "type": "mcp_call",
            "id": "m1",
            "name": "ask",
            "server_label": "s",
            "arguments": "{}",
            "output": "so",
        },
        result("c9", "news", "invented_thing"),
    )
    assert turn.tool_calls == (ToolCall("c1", "local_shell", '{"type":"exec","command":["ls"]}'),)
    assert turn2.tool_calls[0].name == "apply_patch" and turn2.tool_calls[0].id == "c2"
    assert [(m.tool_call_id, m.text) for m in (shell, other, mcp, new)] == [
        ("c1", "x"),
        ("c2", "gone"),
        ("m1", "so"),
        ("c9", "news"),
    ]
    assert mcp_turn.tool_calls == (ToolCall("m1", "ask", "{}"),)


def test_items_without_a_place_are_noted():
    parsed = parse(
        {"type": "web_search_call", "id": "w", "status": "completed"}, {"type": "compaction"}, user("a")
    )
    assert [m.text for m in parsed.chat.messages] == ["a"]
    assert {"input items of type web_search_call", "input items of type compaction"} <= set(
        parsed.chat.ignored_fields
    )


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ("text", "input[1]"),
        ({"role": "critic", "content": "x"}, "input[1].role"),
        ({"role": "user"}, "input[1].content"),
        ({"role": "user", "content": 5}, "input[1].content"),
        ({"role": "user", "content": [{"type": "smell"}]}, "input[1].content[0].type"),
        ({"type": "function_call", "call_id": "c", "arguments": "{}"}, "input[1].name"),
        ({"type": "function_call", "call_id": "c", "name": "a", "arguments": 5}, "input[1].arguments"),
        ({"type": "item_reference", "id": "msg_9"}, "input[1].id"),
    ],
)
def test_a_bad_item_is_named(item: Any, param: str):
    error = refused(input=[user("a"), item])
    assert error.param == param and param in error.message


def test_namespaces_are_opened():
    parsed = parse(user("a"), tools=[SHELL, NOTES, PATCH, {"type": "web_search"}, {"type": "mcp"}])
    assert [t.name for t in parsed.chat.tools] == [
        "shell",
        "mcp__notes__add",
        "mcp__notes__list",
        "apply_patch",
    ]
    add = parsed.chat.tools[1]
    assert (add.namespace, add.local_name, add.description) == ("mcp__notes", "add", "Add one.")
    assert add.parameters == SCHEMA and add.path == "tools[1].tools[0]"
    assert parsed.reply.tools["mcp__notes__add"] is add
    assert {"tools of type web_search", "tools of type mcp"} <= set(parsed.chat.ignored_fields)
    assert parsed.reply.constant["tools"][1] is NOTES


def test_freeform_tools_are_functions_of_one_string():
    (tool,) = parse(user("a"), tools=[PATCH]).chat.tools
    assert (tool.kind, tool.parameters) == ("custom", CUSTOM_SCHEMA)
    assert tool.custom_format == {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}
    assert tool.description == 'Edit files.\n\nThe input must match this lark grammar:\nstart: "x"'
    (plain,) = parse(
        user("a"), tools=[{"type": "custom", "name": "say", "format": {"type": "text"}}]
    ).chat.tools
    assert (plain.custom_format, plain.description) == (None, None)


def test_strict_is_what_was_asked():
    tools = [{"type": "function", "name": name, **more} for name, more in
             (("a", {}), ("b", {"strict": True}), ("c", {"strict": False, "parameters": None}))]  # fmt: skip
    assert [t.strict for t in parse(user("a"), tools=tools).chat.tools] == [None, True, False]


def test_names_that_meet_when_opened_stay_apart():
    other = {"type": "function", "name": "mcp__notes__add"}
    tools = parse(user("a"), tools=[other, NOTES, SHELL, SHELL]).chat
    assert [t.name for t in tools.tools] == [
        "mcp__notes__add",
        "mcp__notes__add_2",
        "mcp__notes__list",
        "shell",
    ]
    assert "a second tool shell" in tools.ignored_fields
    (turn,) = messages(call("c", "add", namespace="mcp__notes"), tools=[other, NOTES])
    assert turn.tool_calls[0].name == "mcp__notes__add_2"


@pytest.mark.parametrize(
    ("namespace", "name", "flat"),
    [(None, "a", "a"), ("", "a", "a"), ("ns", "a", "ns__a"), ("mcp__x__", "a", "mcp__x__a")],
)
def test_flat_names(namespace: str | None, name: str, flat: str):
    assert flat_name(namespace, name) == flat


def test_tools_that_come_with_the_conversation():
    found = {"type": "tool_search_output", "call_id": "s1", "tools": [NOTES]}
    parsed = parse(
        {"type": "additional_tools", "role": "developer", "tools": [SHELL]},
        {"type": "tool_search_call", "call_id": "s1", "arguments": {"query": "notes"}},
        found,
        call("c", "add", namespace="mcp__notes"),
    )
    assert [t.name for t in parsed.chat.tools] == ["shell", "mcp__notes__add", "mcp__notes__list"]
    searched, shown, turn = parsed.chat.messages
    assert searched.tool_calls == (ToolCall("s1", "tool_search", '{"query":"notes"}'),)
    assert shown.tool_call_id == "s1" and "mcp__notes" in shown.text
    assert turn.tool_calls[0].name == "mcp__notes__add"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "shell"}, ToolChoice("required", ("shell",), named=True)),
        ({"type": "function", "function": {"name": "shell"}}, ToolChoice("required", ("shell",), named=True)),
        ({"type": "function", "name": "add"}, ToolChoice("required", ("mcp__notes__add",), named=True)),
        (
            {"type": "function", "name": "add", "namespace": "mcp__notes"},
            ToolChoice("required", ("mcp__notes__add",), named=True),
        ),
        ({"type": "custom", "name": "apply_patch"}, ToolChoice("required", ("apply_patch",), named=True)),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [
                    {"type": "function", "name": "shell"},
                    {"type": "namespace", "name": "mcp__notes"},
                    {"type": "web_search"},
                ],
            },
            ToolChoice("required", ("shell", "mcp__notes__add", "mcp__notes__list")),
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "shell"}]},
            ToolChoice("auto", ("shell",)),
        ),
    ],
)
def test_tool_choice(choice: Any, expected: ToolChoice):
    parsed = parse(user("a"), tools=[SHELL, NOTES, PATCH], tool_choice=choice)
    assert parsed.chat.tool_choice == expected
    alone = parse(user("a"), tools=[SHELL, NOTES, PATCH], tool_choice=choice, parallel_tool_calls=False)
    assert not alone.chat.tool_choice.parallel


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("sometimes", "tool_choice"),
        ({"type": "function", "name": "gone"}, "tool_choice.name"),
        ({"type": "web_search_preview"}, "tool_choice.type"),
        ({"type": "function"}, "tool_choice.name"),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, "tool_choice.tools"),
        ({"type": "allowed_tools", "mode": "never", "tools": []}, "tool_choice.mode"),
    ],
)
def test_a_choice_that_cannot_be_met(choice: Any, param: str):
    assert refused(tools=[SHELL], tool_choice=choice).param == param


def test_required_needs_a_tool():
    assert refused(tools=[{"type": "web_search"}], tool_choice="required").param == "tool_choice"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, OutputFormat("json_object", param="text.format")),
        (
            {"type": "json_schema", "name": "n", "strict": True, "schema": SCHEMA},
            OutputFormat("json_schema", SCHEMA, strict=True, param="text.format.schema", name="n"),
        ),
    ],
)
def test_text_format(given: Any, expected: OutputFormat | None):
    assert parse(user("a"), text={"format": given, "verbosity": "low"}).chat.output_format == expected


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"type": "xml"}, "text.format.type"),
        ({"type": "json_schema", "name": "n"}, "text.format.schema"),
        ({}, "text.format.type"),
    ],
)
def test_a_bad_text_format(given: Any, param: str):
    assert refused(text={"format": given}).param == param


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ReasoningOptions()),
        ({}, ReasoningOptions()),
        ({"summary": "auto"}, ReasoningOptions()),
        ({"effort": "none"}, ReasoningOptions(enabled=False, effort="none")),
        ({"effort": "high"}, ReasoningOptions(enabled=True, effort="high")),
    ],
)
def test_reasoning(given: Any, expected: ReasoningOptions):
    assert parse(user("a"), reasoning=given).chat.reasoning == expected
    assert parse(user("a"), reasoning=given).reply.shows_summaries == bool(given and given.get("summary"))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"chat_template": "x"}, "chat_template"),
        ({"previous_response_id": "resp_9"}, "previous_response_id"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"n": 2}, "n"),
        ({"top_logprobs": -1}, "top_logprobs"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "a", "parameters": 1}]}, "tools[0].parameters"),
        (
            {"tools": [{"type": "custom", "name": "a", "format": {"type": "grammar", "syntax": "peg"}}]},
            "tools[0].format.syntax",
        ),
        ({"tools": [{**NOTES, "tools": [{"type": "function"}]}]}, "tools[0].tools[0].name"),
        ({"reasoning": {"effort": "extreme"}}, "reasoning.effort"),
        ({"store": "yes"}, "store"),
        ({"include": ["a", 1]}, "include[1]"),
        ({"temperature": -3}, "temperature"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], param: str):
    assert refused(**fields).param == param


def test_an_unknown_earlier_response_in_openais_words():
    error = refused(previous_response_id="resp_9")
    assert error.code == "previous_response_not_found"
    assert error.message == "Previous response with id 'resp_9' not found."


def test_earlier_items_come_first():
    before = Before(resp_1=[user("one"), said("two")])
    parsed = parse(user("three"), previous_response_id="resp_1", instructions="new", earlier=before)
    assert [m.text for m in parsed.chat.messages] == ["new", "one", "two", "three"]
    assert [m.index for m in parsed.chat.messages] == [-1, EARLIER_INDEX, EARLIER_INDEX, 0]
    assert parsed.reply.items == (user("one"), said("two"), user("three"))


def test_references_to_items():
    before = Before(resp_1=[{**said("two"), "id": "msg_1"}])
    written = messages(
        user("one"), {"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}, earlier=before
    )
    assert [m.text for m in written] == ["one", "two", "two"]


def test_what_codex_sends_is_taken_whole():
    parsed = parse_request(
        {
            "model": "local",
            "instructions": None,
            "input": [
                {
                    "type": "message",
                    "role": "developer",
                    "content": [{"type": "input_text", "text": "rules"}],
                },
                user("environment"),
                user("task"),
            ],
            "tools": [SHELL, NOTES, {"type": "web_search", "external_web_access": False}],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {},
            "store": False,
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "key",
            "client_metadata": {"x": "y"},
            "text": {"verbosity": "low"},
            "service_tier": "auto",
        }
    )
    assert [m.role for m in parsed.chat.messages] == ["developer", "user", "user"]
    assert parsed.chat.stream and not parsed.reply.store and parsed.reply.carries_reasoning
    assert parsed.chat.ignored_fields == ("client_metadata", "tools of type web_search", "text.verbosity")
    assert parsed.reply.constant["prompt_cache_key"] == "key"


def test_sampling_and_logprobs():
    parsed = parse(
        user("a"), temperature=0.2, top_p=0.5, seed=3, max_output_tokens=9, top_logprobs=2, max_tokens=4
    )
    assert parsed.chat.sampling == {
        "temperature": 0.2,
        "top_p": 0.5,
        "seed": 3,
        "max_tokens": 9,
        "logprobs": 2,
    }
    assert parsed.reply.logprobs == 2
    assert parse(user("a"), include=["message.output_text.logprobs"]).reply.logprobs == 0
    assert parse(user("a")).reply.logprobs is None


def test_media_are_kept_as_what_they_are():
    image = {"type": "input_image", "image_url": "http://169.254.169.254/x"}
    (message,) = messages({"role": "user", "content": [{"type": "input_text", "text": "see"}, image]})
    assert message.parts[1] == MediaPart("image", image, "input[0].content[1]") and message.text == "see"


def test_other_apis_names_for_a_constraint():
    assert parse(user("a"), guided_regex="a+").chat.output_format == OutputFormat(
        "regex", "a+", strict=True, param="guided_regex"
    )
    assert refused(guided_regex="a", text={"format": {"type": "json_object"}}).param == "guided_regex"


@pytest.mark.parametrize("content", [None, "", [], [{"type": "output_text", "text": ""}]])
def test_an_empty_assistant_message_is_no_turn(content: Any):
    turn, _ = messages({"role": "assistant", "content": content}, call("c1"), result("c1", "x"))
    assert turn.parts == () and len(turn.tool_calls) == 1
