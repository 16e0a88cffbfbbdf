"""The official openai package against the 0.5B: chat with tools, structured output, embeddings."""

from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import BaseModel

from tests.clients.serving import Served

openai = pytest.importorskip("openai")

pytestmark = pytest.mark.model


class City(BaseModel):
    name: str
    country: Literal["France", "Japan", "Peru"]
    is_capital: bool


def function(name: str, description: str, **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


WEATHER = function("get_weather", "Current weather of a city", city={"type": "string"})
TIME = function("get_time", "Current time in a zone", zone={"type": "string", "enum": ["UTC", "CET", "JST"]})
TOOLS = [WEATHER, TIME]
ASK = [{"role": "user", "content": "What is the weather in Paris? Use get_weather."}]
COMMON: dict[str, Any] = {"model": "local", "temperature": 0, "max_tokens": 60}


@pytest.fixture
def client(coder_served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=coder_served.url + "/v1", api_key="sk-test", max_retries=0)


def test_a_tool_loop(client: openai.OpenAI):
    first = client.chat.completions.create(messages=ASK, tools=TOOLS, **COMMON).choices[0]
    assert first.finish_reason == "tool_calls"
    (call,) = first.message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    result = {"role": "tool", "tool_call_id": call.id, "content": '{"sky": "clear", "celsius": 21}'}
    history = [*ASK, first.message, result]
    second = client.chat.completions.create(messages=history, tools=TOOLS, tool_choice="none", **COMMON)
    assert second.choices[0].message.content and not second.choices[0].message.tool_calls
    assert second.usage.prompt_tokens_details.cached_tokens > 0.5 * second.usage.prompt_tokens


def test_a_stream_of_a_call_says_what_the_whole_answer_says(client: openai.OpenAI):
    whole = client.chat.completions.create(messages=ASK, tools=TOOLS, **COMMON).choices[0].message
    with client.chat.completions.stream(messages=ASK, tools=TOOLS, **COMMON) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_completion().choices[0]
    assert (
        "tool_calls.function.arguments.delta" in kinds
        and kinds.count("tool_calls.function.arguments.done") == 1
    )
    assert streamed.finish_reason == "tool_calls"
    assert [c.function.arguments for c in streamed.message.tool_calls] == [
        c.function.arguments for c in whole.tool_calls
    ]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"get_weather", "get_time"}),
        ({"type": "function", "function": {"name": "get_time"}}, {"get_time"}),
        ("none", set()),
    ],
    ids=["required", "named", "none"],
)
def test_tool_choice_is_kept(client: openai.OpenAI, choice: Any, names: set[str], streamed: bool):
    fields = {"messages": ASK, "tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False, **COMMON}
    if streamed:
        with client.chat.completions.stream(**fields) as stream:
            answer = stream.get_final_completion()
    else:
        answer = client.chat.completions.create(**fields)
    calls = answer.choices[0].message.tool_calls or []
    assert len(calls) == bool(names) and {call.function.name for call in calls} <= names
    for call in calls:
        arguments = json.loads(call.function.arguments)
        assert set(arguments) == ({"zone"} if call.function.name == "get_time" else {"city"})
        assert arguments.get("zone", "UTC") in ("UTC", "CET", "JST")


def test_an_answer_is_parsed_into_a_model(client: openai.OpenAI):
    messages = [{"role": "user", "content": "Describe Tokyo."}]
    answer = client.chat.completions.parse(messages=messages, response_format=City, **COMMON).choices[0]
    assert answer.finish_reason == "stop"
    assert answer.message.parsed.country in ("France", "Japan", "Peru")
    with client.chat.completions.stream(messages=messages, response_format=City, **COMMON) as stream:
        streamed = stream.get_final_completion().choices[0]
    assert streamed.message.parsed == answer.message.parsed


def test_json_mode(client: openai.OpenAI):
    messages = [{"role": "user", "content": "Describe Lima as JSON with the keys name and country."}]
    answer = client.chat.completions.create(
        messages=messages, response_format={"type": "json_object"}, **COMMON
    ).choices[0]
    assert answer.finish_reason == "stop"
    assert isinstance(json.loads(answer.message.content), dict)


def test_text_with_tools_offered(client: openai.OpenAI):
    fields = {"messages": [{"role": "user", "content": "Hello, how are you?"}], "tools": TOOLS, **COMMON}
    whole = client.chat.completions.create(**fields).choices[0]
    assert (whole.finish_reason, whole.message.tool_calls) == ("stop", None)
    usage = {"include_usage": True}
    chunks = list(client.chat.completions.create(stream=True, stream_options=usage, **fields))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.message.content != ""
    assert chunks[-1].usage.completion_tokens > 0


def test_embeddings(client: openai.OpenAI):
    texts = ["a cat sat on the mat", "a kitten sat on the rug", "quarterly revenue fell"]
    by_package = client.embeddings.create(model="local", input=texts)  # the package asks for base64
    cat, kitten, revenue = (np.array(one.embedding) for one in by_package.data)
    plain = client.embeddings.create(model="local", input=texts[0], encoding_format="float").data[0].embedding
    assert plain == pytest.approx(cat, abs=1e-5)
    assert np.linalg.norm(cat) == pytest.approx(1, abs=1e-4)
    assert cat @ kitten > cat @ revenue
