"""An agent's loop with a real model: each step computes only what is new, whatever runs in between, on every API.

A step's request repeats everything before it and adds the assistant's turn as it came and a tool's result. Sub-agents and title requests
with prompts of their own come in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from edgewise.config import Config, EngineOptions, ModelOptions
from edgewise.pipeline import load_pipeline
from tests.server.conftest import running
from tests.support.models import CODER_05B, model_path

pytestmark = pytest.mark.model

STEPS = 10
SLACK_TOKENS = 32
SYSTEM = "You work in the user's project. " + " ".join(
    f"Rule {i}: change one thing at a time." for i in range(20)
)
TASK = "Find the wrong total and mend it."
PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "line": {"type": "integer"}},
    "required": ["path", "line"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    engine = EngineOptions(max_model_len=4096, max_num_seqs=4)
    pipeline = load_pipeline(Config(model=ModelOptions(model=str(model_path(CODER_05B))), engine=engine))
    with running(pipeline) as address:
        yield address
    pipeline.close()


def post(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = httpx.post(url + path, json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def disturb(url: str, step: int) -> None:
    """A sub-agent with its own prompt, and a title request."""
    other = [
        {"role": "system", "content": f"You are helper {step % 2}. Be brief."},
        {"role": "user", "content": TASK},
    ]
    post(url, "/v1/chat/completions", {"messages": other, "max_tokens": 4})
    title = [{"role": "user", "content": "A title for: " + TASK}]
    post(url, "/v1/chat/completions", {"messages": title, "max_tokens": 4})


class Chat:
    """The loop as an OpenAI chat client has it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": TASK},
        ]

    def step(self, number: int) -> tuple[int, int]:
        """Prompt tokens, and how many of them came from the cache."""
        tool = {"type": "function", "function": {"name": "read", "parameters": PARAMETERS}}
        body = {
            "messages": self._messages,
            "tools": [tool],
            "tool_choice": "required" if number % 3 else "auto",
            "parallel_tool_calls": False,
            "temperature": 0,
            "max_tokens": 48,
        }
        answer = post(self._url, "/v1/chat/completions", body)
        message = answer["choices"][0]["message"]
        self._messages.append({k: v for k, v in message.items() if v is not None})
        for call in message.get("tool_calls") or ():
            self._messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": f"{number}: total = 7"}
            )
        if not message.get("tool_calls"):
            self._messages.append({"role": "user", "content": f"Go on, step {number}."})
        usage = answer["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class Messages:
    """The loop as Claude Code has it, the changing billing line at the top included."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": TASK}]}]

    def step(self, number: int) -> tuple[int, int]:
        billing = f"x-anthropic-billing-header: cc_version=2.1.{number}; cch=a{number:03d};"
        body = {
            "model": "local",
            "system": [{"type": "text", "text": billing}, {"type": "text", "text": SYSTEM}],
            "messages": self._messages,
            "tools": [{"name": "read", "input_schema": PARAMETERS}],
            "tool_choice": {"type": "any" if number % 3 else "auto", "disable_parallel_tool_use": True},
            "max_tokens": 48,
            "temperature": 0,
        }
        answer = post(self._url, "/v1/messages", body)
        self._messages.append({"role": "assistant", "content": answer["content"]})
        results: list[dict[str, Any]] = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": f"{number}: total = 7"}
            for block in answer["content"]
            if block["type"] == "tool_use"
        ]
        self._messages.append({"role": "user", "content": results or f"Go on, step {number}."})
        usage = answer["usage"]
        return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["cache_read_input_tokens"]


class Responses:
    """The loop as Codex has it: everything sent again, nothing stored."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._input: list[dict[str, Any]] = [{"role": "user", "content": TASK}]

    def step(self, number: int) -> tuple[int, int]:
        body = {
            "instructions": SYSTEM,
            "input": self._input,
            "tools": [{"type": "function", "name": "read", "parameters": PARAMETERS, "strict": True}],
            "tool_choice": "required" if number % 3 else "auto",
            "parallel_tool_calls": False,
            "store": False,
            "temperature": 0,
            "max_output_tokens": 48,
        }
        answer = post(self._url, "/v1/responses", body)
        calls = [item for item in answer["output"] if item["type"] == "function_call"]
        self._input += answer["output"]
        for call in calls:
            json.loads(call["arguments"])
            self._input.append(
                {"type": "function_call_output", "call_id": call["call_id"], "output": f"{number}: total = 7"}
            )
        if not calls:
            self._input.append({"role": "user", "content": f"Go on, step {number}."})
        usage = answer["usage"]
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("api", [Chat, Messages, Responses])
def test_each_step_computes_only_what_is_new(url: str, api: type[Chat] | type[Messages] | type[Responses]):
    loop = api(url)
    before, _ = loop.step(0)
    for number in range(1, STEPS):
        disturb(url, number)
        prompt, cached = loop.step(number)
        assert prompt - cached <= (prompt - before) + SLACK_TOKENS, f"step {number}"
        assert cached > 0
        before = prompt
