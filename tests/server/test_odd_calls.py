"""Calls with odd names and odd values, end to end on three APIs, streamed and whole; calls written without marks are counted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server.conftest import running
from tests.support.pipelines import make_pipeline

pytestmark = pytest.mark.http

TURN = "<|im_end|>\n<|im_start|>assistant\n"
NAMES = ("fs.read", "mcp__server__read", "a/b:c-d", "read", "read_all", "x" * 64)
VALUES = {
    "markup": "</tool_call> <tool_call> {\"name\": \"read\"} </think>",
    "unicode": "Zürich 東京 🙂 \u2028 e\u0301",
    "escapes": "back\\slash \"quoted\" tab\t line\n \u0001",
    "deep": json.dumps({"a": [{"b": [[[]]]}]}),
}  # fmt: skip
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "more": {"type": "object"}},
                "required": ["text"],
            },
        },
    }
    for name in NAMES
]


def written(name: str, arguments: dict[str, Any], *, marked: bool = True) -> str:
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>" if marked else call


ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"name {i}": (name, {"text": "plain"}) for i, name in enumerate(NAMES)},
    **{f"value {key}": ("read", {"text": value, "more": {"k": value}}) for key, value in VALUES.items()},
}
ANSWERS = {f"{asked}{TURN}": written(*call) + "<|im_end|>" for asked, call in ASKED.items()}
ANSWERS[f"bare{TURN}"] = (
    written("read", {"text": "one"}, marked=False) + "\n" + written("fs.read", {"text": "two"}, marked=False)
    + "<|im_end|>"
)  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[httpx.Client]:
    pipeline = make_pipeline(ANSWERS, max_model_len=8192, num_blocks=4096, max_num_batched_tokens=256)
    with running(pipeline) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client
    pipeline.close()


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    response.raise_for_status()
    found = re.findall(r"^data: (\{.*\})$", response.text, re.MULTILINE)
    return [json.loads(data) for data in found]


def chat(server: httpx.Client, asked: str, stream: bool) -> list[tuple[str, Any]]:
    body = {
        "messages": [{"role": "user", "content": asked}],
        "tools": TOOLS,
        "temperature": 0,
        "stream": stream,
    }
    response = server.post("/v1/chat/completions", json=body)
    if not stream:
        (choice,) = response.raise_for_status().json()["choices"]
        assert choice["finish_reason"] == "tool_calls" and not choice["message"]["content"]
        calls = [call["function"] for call in choice["message"]["tool_calls"]]
        return [(call["name"], json.loads(call["arguments"])) for call in calls]
    names: dict[int, str] = {}
    texts: dict[int, str] = {}
    for chunk in events_of(response):
        for choice in chunk["choices"]:
            for piece in choice["delta"].get("tool_calls", ()):
                function = piece["function"]
                names.setdefault(piece["index"], function.get("name", ""))
                texts[piece["index"]] = texts.get(piece["index"], "") + function["arguments"]
    return [(names[i], json.loads(texts[i])) for i in sorted(names)]


def messages(server: httpx.Client, asked: str, stream: bool) -> list[tuple[str, Any]]:
    tools = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]  # type: ignore[index]
    body = {"messages": [{"role": "user", "content": asked}], "tools": tools, "temperature": 0, "max_tokens": 600, "stream": stream}  # fmt: skip
    response = server.post("/v1/messages", json=body)
    if not stream:
        answer = response.raise_for_status().json()
        assert answer["stop_reason"] == "tool_use"
        return [(block["name"], block["input"]) for block in answer["content"] if block["type"] == "tool_use"]
    calls: list[tuple[str, str]] = []
    for event in events_of(response):
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            calls.append((event["content_block"]["name"], ""))
        elif event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            calls[-1] = calls[-1][0], calls[-1][1] + event["delta"]["partial_json"]
    return [(name, json.loads(text)) for name, text in calls]


def responses(server: httpx.Client, asked: str, stream: bool) -> list[tuple[str, Any]]:
    tools = [{"type": "function", **t["function"]} for t in TOOLS]  # type: ignore[dict-item]
    body = {"input": asked, "tools": tools, "temperature": 0, "store": False, "stream": stream}
    response = server.post("/v1/responses", json=body)
    answer = events_of(response)[-1]["response"] if stream else response.raise_for_status().json()
    assert answer["status"] == "completed"
    calls = [item for item in answer["output"] if item["type"] == "function_call"]
    return [(call["name"], json.loads(call["arguments"])) for call in calls]


APIS = {"chat": chat, "messages": messages, "responses": responses}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("asked", ASKED)
def test_names_and_values_come_through(server: httpx.Client, asked: str, api: str, stream: bool):
    assert APIS[api](server, asked, stream) == [ASKED[asked]]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("api", APIS)
def test_calls_without_marks_are_calls_and_counted(server: httpx.Client, api: str, stream: bool):
    def counted() -> float:
        (line,) = re.findall(
            r"^edgewise:bare_calls_total\{.*\} (.*)$", server.get("/metrics").text, re.MULTILINE
        )
        return float(line)

    before = counted()
    assert APIS[api](server, "bare", stream) == [("read", {"text": "one"}), ("fs.read", {"text": "two"})]
    assert counted() == before + 2
