"""Codex's way through /v1/responses: calls of functions, namespaces and freeform tools, and the next turn with their results."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from edgewise.config import ChatOptions
from edgewise.pipeline import Pipeline
from tests.server.conftest import MakeClient
from tests.server.test_responses import URL, events_of, text_of

OPEN = "<|im_end|>\n<|im_start|>assistant\n"
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "name": "exec_command",
        "description": "Run.",
        "strict": False,
        "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
    },
    {
        "type": "namespace",
        "name": "mcp__notes",
        "description": "Notes.",
        "tools": [
            {
                "type": "function",
                "name": "add",
                "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
            }
        ],
    },
    {"type": "custom", "name": "apply_patch", "description": "Edit.", "format": {"type": "text"}},
    {"type": "web_search", "external_web_access": False},
]


def call(name: str, arguments: dict[str, Any]) -> str:
    text = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{text}\n</tool_call>"


PATCH = '*** Begin Patch\n"a" → b\n*** End Patch'
ANSWERS = {
    f"list{OPEN}": "Looking." + call("exec_command", {"cmd": "ls"}) + "<|im_end|>",
    f"note{OPEN}": call("mcp__notes__add", {"text": "milk"}) + "<|im_end|>",
    f"patch{OPEN}": call("apply_patch", {"input": PATCH}) + "<|im_end|>",
    f"both{OPEN}": call("exec_command", {"cmd": "a"}) + "\n" + call("mcp__notes__add", {}) + "<|im_end|>",
    f"a.py{OPEN}": "There is one file.<|im_end|>",
}


@pytest.fixture
def client(make: Callable[..., Pipeline], client_of: MakeClient) -> httpx.AsyncClient:
    return client_of(make(ANSWERS, max_model_len=2048, chat=ChatOptions(tool_call_parser="hermes")))


async def ask(client: httpx.AsyncClient, *items: Any, **fields: Any) -> dict[str, Any]:
    """The final response of a stream, which must equal the one made in one piece."""
    body = {"input": list(items), "tools": TOOLS, "temperature": 0, "store": False, **fields}
    streamed = await client.post(URL, json={**body, "stream": True})
    assert streamed.status_code == 200, streamed.text
    last = events_of(streamed.text)[-1]["response"]
    whole = (await client.post(URL, json=body)).json()
    assert list(map(bare, whole["output"])) == list(map(bare, last["output"]))
    assert whole["status"] == last["status"]
    return last


def bare(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in ("id", "call_id")}


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


async def test_a_loop_of_two_turns(client: httpx.AsyncClient):
    first = await ask(client, user("list"))
    message, made = first["output"]
    assert (message["content"][0]["text"], first["status"]) == ("Looking.", "completed")
    assert (made["type"], made["name"], json.loads(made["arguments"])) == (
        "function_call",
        "exec_command",
        {"cmd": "ls"},
    )
    result = {"type": "function_call_output", "call_id": made["call_id"], "output": "a.py"}
    second = await ask(client, user("list"), message, made, result)
    assert text_of(second) == "There is one file."


async def test_a_namespace_is_closed_in_the_answer(client: httpx.AsyncClient):
    (made,) = (await ask(client, user("note")))["output"]
    assert (made["namespace"], made["name"]) == ("mcp__notes", "add")
    assert json.loads(made["arguments"]) == {"text": "milk"}


async def test_a_freeform_tool_gets_plain_text(client: httpx.AsyncClient):
    (made,) = (await ask(client, user("patch")))["output"]
    assert (made["type"], made["name"], made["input"]) == ("custom_tool_call", "apply_patch", PATCH)


async def test_two_calls_at_once(client: httpx.AsyncClient):
    calls = (await ask(client, user("both")))["output"]
    assert [item["name"] for item in calls if item["type"] == "function_call"] == ["exec_command", "add"]
    assert len({item["call_id"] for item in calls if "call_id" in item}) == 2


async def test_a_call_cut_off_is_incomplete(client: httpx.AsyncClient):
    response = await ask(client, user("list"), max_output_tokens=60)
    assert response["status"] == "incomplete" and response["output"][-1]["status"] == "incomplete"
    json.loads(response["output"][-1]["arguments"])


async def test_none_makes_no_call(client: httpx.AsyncClient):
    response = await ask(client, user("note"), tool_choice="none", max_output_tokens=40)
    assert not [item for item in response["output"] if item["type"].endswith("_call")]


async def test_a_named_tool_is_called(client: httpx.AsyncClient):
    choice = {"type": "function", "name": "add", "namespace": "mcp__notes"}
    response = await ask(client, user("note"), tool_choice=choice)
    assert [item["name"] for item in response["output"]] == ["add"]


async def test_a_freeform_tool_whose_grammar_is_none(client: httpx.AsyncClient):
    grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: ("a"'}
    tools = [{"type": "custom", "name": "patch", "format": grammar}]
    response = await client.post("/v1/responses", json={"input": "x", "tools": tools})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "tools[0].format.definition" and "is no Lark grammar" in error["message"]
