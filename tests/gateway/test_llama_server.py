"""The gateway in front of a real llama-server, learned as it is: a recorded loop of twelve steps on every API, without an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from edgewise.gateway.config import GatewayConfig, UpstreamConfig
from edgewise.gateway.keys import OpenDoor
from edgewise.gateway.parts import ForwardOptions
from edgewise.gateway.run import Gateway
from tests.support.gateway_parts import serving_app
from tests.support.llama_server import llama_server
from tests.support.models import CODER_05B, model_path

pytestmark = [pytest.mark.slow, pytest.mark.model]

STEPS = 12
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
    "required": ["path"],
}
NAME, SYSTEM, TASK = "write_file", "You work in the user's project.", "Write the modules."


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with llama_server(model_path(CODER_05B)) as upstream:
        config = GatewayConfig(upstreams=(UpstreamConfig("local", upstream),))
        with serving_app(Gateway(lambda: config, ForwardOptions(), keys=OpenDoor()).app) as address:
            yield address


def arguments(step: int) -> dict[str, str]:
    return {"path": f"module_{step}.py", "text": f"x = {step}\nif x < 1:\n    print('no')\n"}


def chat_body(steps: int, *, as_objects: bool = False, **fields: Any) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": TASK},
    ]
    for step in range(steps):
        given: Any = arguments(step) if as_objects else json.dumps(arguments(step))
        function = {"name": NAME, "arguments": given}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{step}", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": f"c{step}", "content": f"wrote {step}"},
        ]  # fmt: skip
    tools = [{"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}]
    return {
        "model": "gpt-5",
        "messages": messages,
        "tools": tools,
        "temperature": 0,
        "max_tokens": 4,
        **fields,
    }


def messages_body(steps: int) -> dict[str, Any]:
    turns: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    for step in range(steps):
        turns += [
            {"role": "assistant", "content": [{"type": "tool_use", "id": f"c{step}", "name": NAME, "input": arguments(step)}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{step}", "content": f"wrote {step}"}]},
        ]  # fmt: skip
    tools = [{"name": NAME, "input_schema": SCHEMA}]
    return {"model": "claude", "system": SYSTEM, "messages": turns, "tools": tools, "max_tokens": 4, "temperature": 0, "stream": True}  # fmt: skip


def responses_body(steps: int) -> dict[str, Any]:
    items: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    for step in range(steps):
        items += [
            {
                "type": "function_call",
                "call_id": f"c{step}",
                "name": NAME,
                "arguments": json.dumps(arguments(step)),
            },
            {"type": "function_call_output", "call_id": f"c{step}", "output": f"wrote {step}"},
        ]
    tools = [{"type": "function", "name": NAME, "parameters": SCHEMA}]
    return {"model": "gpt-5-codex", "instructions": SYSTEM, "input": items, "tools": tools, "max_output_tokens": 4, "temperature": 0, "stream": True}  # fmt: skip


def post(url: str, path: str, body: dict[str, Any]) -> httpx.Response:
    answer = httpx.post(url + path, json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_a_loop_in_chats_costs_the_same_however_arguments_are_written(url: str):
    counts: dict[bool, list[int]] = {False: [], True: []}
    for steps in range(STEPS):
        for as_objects in counts:
            usage = post(url, "/v1/chat/completions", chat_body(steps, as_objects=as_objects)).json()["usage"]
            counts[as_objects].append(usage["prompt_tokens"])
    assert counts[True] == counts[False]
    assert counts[True] == sorted(set(counts[True])), "every step is longer than the one before"


def test_a_loop_in_streamed_messages(url: str):
    before = 0
    for steps in range(STEPS):
        found = events(post(url, "/v1/messages", messages_body(steps)))
        assert found[0]["type"] == "message_start" and found[-1]["type"] == "message_stop"
        assert not [event for event in found if event["type"] == "error"]
        counted = post(url, "/v1/messages/count_tokens", messages_body(steps)).json()["input_tokens"]
        usages = [e.get("usage") or e.get("message", {}).get("usage") or {} for e in found]
        told = max(u.get("input_tokens", 0) + u.get("cache_read_input_tokens", 0) for u in usages)
        assert told == counted > before
        before = counted


def test_a_loop_in_streamed_responses(url: str):
    for steps in range(STEPS):
        found = events(post(url, "/v1/responses", responses_body(steps)))
        assert found[0]["type"] == "response.created"
        assert found[-1]["type"] in ("response.completed", "response.incomplete")
        numbers = [event["sequence_number"] for event in found]
        assert numbers == sorted(set(numbers))


def test_a_required_call_is_made_or_the_client_is_told(url: str):
    body = chat_body(0, tool_choice="required", max_tokens=300)
    body["messages"][-1]["content"] = "Write the text x = 1 into a.py with the tool."
    answer = httpx.post(url + "/v1/chat/completions", json=body, timeout=240)
    if answer.status_code != 200:
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "tool_choice_not_met")
        return
    (choice,) = answer.json()["choices"]
    if choice["finish_reason"] == "length":
        return
    (call, *_) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == NAME and isinstance(json.loads(call["function"]["arguments"]), dict)
