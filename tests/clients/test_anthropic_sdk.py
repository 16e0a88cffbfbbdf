"""The official anthropic package against the 0.5B: tools, results, thinking, counting, streamed and not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.serving import Served

anthropic = pytest.importorskip("anthropic")

pytestmark = pytest.mark.model

WEATHER = {
    "name": "get_weather",
    "description": "Current weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
TIME = {
    "name": "get_time",
    "description": "Current time in a zone",
    "input_schema": {
        "type": "object",
        "properties": {"zone": {"type": "string", "enum": ["UTC", "CET", "JST"]}},
        "required": ["zone"],
        "additionalProperties": False,
    },
}
TOOLS = [WEATHER, TIME]
ASK = {"role": "user", "content": "What is the weather in Paris? Use get_weather."}
COMMON: dict[str, Any] = {
    "model": "local",
    "max_tokens": 60,
    "system": [{"type": "text", "text": "You are terse.", "cache_control": {"type": "ephemeral"}}],
    "extra_body": {"temperature": 0},
}


@pytest.fixture
def client(coder_served: Served) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=coder_served.url, api_key="sk-test", max_retries=0)


def the_use(message: Any) -> Any:
    assert message.stop_reason == "tool_use"
    (use,) = (block for block in message.content if block.type == "tool_use")
    return use


def test_a_tool_loop(client: anthropic.Anthropic):
    first = client.messages.create(messages=[ASK], tools=TOOLS, **COMMON)
    use = the_use(first)
    assert (use.name, use.input) == ("get_weather", {"city": "Paris"})
    result = {
        "type": "tool_result",
        "tool_use_id": use.id,
        "content": [{"type": "text", "text": "clear, 21 C"}],
    }
    history = [ASK, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(messages=history, tools=TOOLS, tool_choice={"type": "none"}, **COMMON)
    assert second.content and all(block.type == "text" for block in second.content)
    usage = second.usage
    assert usage.cache_read_input_tokens > usage.input_tokens


def test_a_stream_of_a_call_says_what_the_whole_answer_says(client: anthropic.Anthropic):
    whole = the_use(client.messages.create(messages=[ASK], tools=TOOLS, **COMMON))
    with client.messages.stream(messages=[ASK], tools=TOOLS, **COMMON) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        use = the_use(stream.get_final_message())
    assert (use.name, use.input) == (whole.name, whole.input)
    assert len(pieces) > 1, "arguments come as they are made"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({"type": "any", "disable_parallel_tool_use": True}, {"get_weather", "get_time"}),
        ({"type": "tool", "name": "get_time"}, {"get_time"}),
        ({"type": "none"}, set()),
    ],
    ids=["any", "tool", "none"],
)
def test_tool_choice_is_kept(client: anthropic.Anthropic, choice: Any, names: set[str], streamed: bool):
    fields = {"messages": [ASK], "tools": TOOLS, "tool_choice": choice, **COMMON}
    if streamed:
        with client.messages.stream(**fields) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**fields)
    uses = [block for block in message.content if block.type == "tool_use"]
    assert len(uses) == bool(names) and {use.name for use in uses} <= names
    assert (message.stop_reason == "tool_use") is bool(names)
    for use in uses:
        assert set(use.input) == ({"zone"} if use.name == "get_time" else {"city"})


def test_a_failed_result_and_a_picture_in_one_are_read(client: anthropic.Anthropic):
    use = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
    }
    result = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "is_error": True,
        "content": [{"type": "text", "text": "No such city."}, picture],
    }
    history = [ASK, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    message = client.messages.create(messages=history, tools=TOOLS, **COMMON)
    assert message.content and message.stop_reason in ("end_turn", "tool_use", "max_tokens")


@pytest.mark.parametrize(
    "thinking",
    [{"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}, {"type": "disabled"}],
    ids=lambda thinking: thinking["type"],
)
def test_a_thinking_config_is_accepted_and_thoughts_come_back(client: anthropic.Anthropic, thinking: Any):
    """This model does not think; a client that sends its settings and replayed thoughts must still be served."""
    thought = {"type": "thinking", "thinking": "The user greets.", "signature": "c2lnbmVk"}
    history = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "Hello!"}]},
        {"role": "user", "content": "Say the word yes."},
    ]
    message = client.messages.create(messages=history, thinking=thinking, **{**COMMON, "max_tokens": 1100})
    assert "yes" in message.content[-1].text.lower()


def test_counting_equals_what_the_request_reports(client: anthropic.Anthropic):
    counted = client.messages.count_tokens(
        model="local", system=COMMON["system"], messages=[ASK], tools=TOOLS
    ).input_tokens
    usage = client.messages.create(messages=[ASK], tools=TOOLS, **COMMON).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens
