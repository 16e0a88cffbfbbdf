"""Tools, structured output and templates of /v1/chat/completions, over the real engine and a scripted model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from edgewise.pipeline import Pipeline
from tests.server.conftest import MakeClient

URL = "/v1/chat/completions"
TURN = "<|im_end|>\n<|im_start|>assistant\n"
PUT = {
    "type": "function",
    "function": {
        "name": "put",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
    },
}
CALL = '{"name": "put", "arguments": {"path": "a.txt"}}'
ANSWERS = {
    f"write{TURN}": f"{CALL}<|im_end|>",
    f"greet{TURN}": "Hello there!<|im_end|>",
    "<<raw>>": "as it stands<|im_end|>",
    "own: greet!": "so I was asked<|im_end|>",
}


@pytest.fixture
def client(make: Callable[..., Pipeline], client_of: MakeClient) -> httpx.AsyncClient:
    return client_of(make(ANSWERS, max_model_len=2048), trust_request_chat_template=True)


async def ask(client: httpx.AsyncClient, text: str, **fields: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, **fields}
    response = await client.post(URL, json=body)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


async def test_a_call_is_a_call_streamed_and_whole(client: httpx.AsyncClient):
    whole = await ask(client, "write", tools=[PUT])
    (call,) = whole["message"]["tool_calls"]
    assert whole["finish_reason"] == "tool_calls" and whole["message"]["content"] is None
    assert json.loads(call["function"]["arguments"]) == {"path": "a.txt"}
    body = {
        "messages": [{"role": "user", "content": "write"}],
        "temperature": 0,
        "tools": [PUT],
        "stream": True,
    }
    text = (await client.post(URL, json=body)).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: {")]
    deltas = [json.loads(line)["choices"][0] for line in lines]
    pieces = [piece for choice in deltas for piece in choice["delta"].get("tool_calls", ())]
    assert pieces[0]["function"]["name"] == "put" and pieces[0]["id"]
    assert {piece["index"] for piece in pieces} == {0}
    assert "".join(p["function"]["arguments"] for p in pieces) == call["function"]["arguments"]
    assert deltas[-1]["finish_reason"] == "tool_calls"


async def test_a_legacy_function_is_answered_as_one(client: httpx.AsyncClient):
    whole = await ask(client, "write", functions=[PUT["function"]])
    assert whole["finish_reason"] == "function_call"
    assert json.loads(whole["message"]["function_call"]["arguments"]) == {"path": "a.txt"}


async def test_text_with_tools_offered_is_text(client: httpx.AsyncClient):
    whole = await ask(client, "greet", tools=[PUT])
    assert whole["message"] == {"role": "assistant", "content": "Hello there!"}
    assert whole["finish_reason"] == "stop"


async def test_without_tools_json_is_text(client: httpx.AsyncClient):
    assert (await ask(client, "write"))["message"]["content"] == CALL
    assert (await ask(client, "write", tools=[PUT], tool_choice="none"))["message"].get("tool_calls") is None


@pytest.mark.parametrize(
    "choice", ["required", "put", {"type": "function", "function": {"name": "put"}}], ids=str
)
async def test_a_required_call_is_made_whatever_the_model_wants_to_say(
    client: httpx.AsyncClient, choice: Any
):
    whole = await ask(client, "greet", tools=[PUT], tool_choice=choice, max_tokens=200)
    (call,) = whole["message"]["tool_calls"]
    assert call["function"]["name"] == "put"
    if whole["finish_reason"] != "length":
        assert set(json.loads(call["function"]["arguments"])) == {"path"}
        assert whole["finish_reason"] == ("tool_calls" if choice == "required" else "stop")


@pytest.mark.parametrize(
    "fields",
    [
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "c", "schema": {"enum": ["red"]}},
            }
        },
        {"guided_json": {"enum": ["red"]}},
        {"structured_outputs": {"choice": ['"red"']}},
        {"guided_decoding": {"regex": '"red"'}},
        {"grammar": 'root ::= "\\"red\\""'},
        {"structured_outputs": {"grammar": 'start: "\\"red\\""'}},
    ],
    ids=str,
)
async def test_structured_output_binds_on_both_endpoints(client: httpx.AsyncClient, fields: dict[str, Any]):
    assert (await ask(client, "greet", **fields))["message"]["content"] == '"red"'
    body = {"prompt": "x", "temperature": 0, "max_tokens": 50, **fields}
    completed = (await client.post("/v1/completions", json=body)).json()
    assert completed["choices"][0]["text"] == '"red"'


async def test_a_prompt_that_is_formatted_already_is_taken_as_it_stands(client: httpx.AsyncClient):
    whole = await ask(client, "<<raw>>", apply_chat_template=False)
    assert whole["message"]["content"] == "as it stands"


async def test_a_trusted_request_brings_its_own_template(client: httpx.AsyncClient):
    whole = await ask(client, "greet", chat_template="own: {{ messages[0].content }}!")
    assert whole["message"]["content"] == "so I was asked"
    bad = {"messages": [{"role": "user", "content": "x"}], "chat_template": "{% for %}"}
    response = await client.post(URL, json=bad)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "chat_template")


async def test_media_are_refused_by_their_place(client: httpx.AsyncClient):
    image = {"type": "image_url", "image_url": {"url": "http://169.254.169.254/x"}}
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, image]}]}
    response = await client.post(URL, json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages[0].content[1]")


async def test_ignored_options_are_counted(client: httpx.AsyncClient):
    await ask(client, "greet", verbosity="low", audio={"voice": "x"}, max_tokens=1)
    metrics = (await client.get("/metrics")).text
    for name in ("verbosity", "audio"):
        assert f'field="{name}"' in metrics


TOOLS_TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% if enable_thinking %}<think>{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


@pytest.mark.parametrize(
    "fields", [{}, {"tools": [PUT]}, {"reasoning_effort": "high"}, {"enable_thinking": True}], ids=str
)
async def test_tokenize_counts_what_the_request_then_reports(
    make: Callable[..., Pipeline], client_of: MakeClient, fields: dict[str, Any]
):
    client = client_of(make({}, template=TOOLS_TEMPLATE))
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    counted = (await client.post("/tokenize", json=body)).json()["count"]
    usage = (await client.post(URL, json={**body, "max_tokens": 1})).json()["usage"]
    assert counted == usage["prompt_tokens"]
    plain = (await client.post("/tokenize", json={"messages": body["messages"]})).json()["count"]
    assert (counted > plain) == bool(fields)
