"""The official openai package's responses API against the 0.5B: function tools, streams, text_format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.serving import Served
from tests.clients.test_openai_sdk import City

openai = pytest.importorskip("openai")

pytestmark = pytest.mark.model

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
ASK = "What is the weather in Paris? Use get_weather."
COMMON: dict[str, Any] = {"model": "local", "temperature": 0, "max_output_tokens": 60}


@pytest.fixture
def client(coder_served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=coder_served.url + "/v1", api_key="sk-test", max_retries=0)


def the_call(response: Any) -> Any:
    (call,) = (item for item in response.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    return call


def test_a_tool_loop(client: openai.OpenAI):
    first = client.responses.create(input=ASK, tools=[WEATHER], **COMMON)
    assert first.status == "completed"
    call = the_call(first)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": '{"celsius": 21}'}
    history = [{"role": "user", "content": ASK}, *first.output, result]
    second = client.responses.create(
        input=history, tools=[WEATHER], tool_choice="none", store=False, **COMMON
    )
    assert second.output_text and all(item.type == "message" for item in second.output)
    assert second.usage.input_tokens_details.cached_tokens > 0.5 * second.usage.input_tokens
    kept = client.responses.create(
        input=[result], previous_response_id=first.id, tools=[WEATHER], tool_choice="none", **COMMON
    )
    assert kept.output_text == second.output_text, "the kept response stands for the history"


def test_a_stream_of_a_call(client: openai.OpenAI):
    whole = client.responses.create(input=ASK, tools=[WEATHER], **COMMON)
    with client.responses.stream(input=ASK, tools=[WEATHER], **COMMON) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert the_call(final).arguments == the_call(whole).arguments
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == the_call(final).arguments
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(
    ("choice", "num_calls"),
    [("required", 1), ({"type": "function", "name": "get_weather"}, 1), ("none", 0)],
    ids=["required", "named", "none"],
)
def test_tool_choice_is_kept(client: openai.OpenAI, choice: Any, num_calls: int):
    response = client.responses.create(
        input="Say hello.", tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False, **COMMON
    )
    calls = [item for item in response.output if item.type == "function_call"]
    assert len(calls) == num_calls
    assert all(set(json.loads(call.arguments)) == {"city"} for call in calls)


def test_an_answer_is_parsed_into_a_model(client: openai.OpenAI):
    parsed = client.responses.parse(input="Describe Tokyo.", text_format=City, **COMMON).output_parsed
    assert parsed.country in ("France", "Japan", "Peru")
    with client.responses.stream(input="Describe Tokyo.", text_format=City, **COMMON) as stream:
        streamed = stream.get_final_response().output_parsed
    assert streamed == parsed


def test_an_answer_that_is_cut_says_so(client: openai.OpenAI):
    response = client.responses.create(
        input="Count from one to a hundred.", **{**COMMON, "max_output_tokens": 16}
    )
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
