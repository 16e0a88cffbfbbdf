"""A coding tool's loop of twelve steps through the gateway to the imitation of Edge-LLM, on every API: no error, and nothing lost on the way.

The loop has what such tools send: names of models that are not served, fields that are refused, reminders as system turns in the middle, calls
in the history as each API has them, and now and then a call that is required.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

import httpx
import pytest

from edgewise.gateway.kinds.edge_llm import CHAT_FIELDS, EdgeLlm
from edgewise.gateway.profile import Api, Fault, Kind, ModelCard, Profile
from edgewise.gateway.shaping import sound_apis
from tests.gateway.shaping_cases import PARAMETERS
from tests.support.edge_llm_model import Called, Said, flat_content
from tests.support.edge_llm_rules import Rules
from tests.support.edge_llm_server import EdgeLlmServer
from tests.support.gateway_parts import FixedUpstream, gateway

pytestmark = pytest.mark.http

STEPS = 12
SYSTEM = "You work in the user's project."
TASK = "Write the modules."
WINDOW = 32_768


def says(body: dict[str, Any], prompt: str) -> Said:
    """One file a step, until the loop ends; a required call is only made where the answer is bound to it."""
    done = sum(message["role"] == "tool" for message in body["messages"])
    if not body.get("tools"):
        return Said("A title")
    if done >= STEPS - 1:
        return Said("All is written.")
    arguments = {"path": f"module_{done}.py", "content": f"x = {done}\nif x < 1:\n    print('no')\n"}
    return Said(f"Step {done}.", calls=(Called("write_file", json.dumps(arguments)),))


@pytest.fixture(scope="module")
def server() -> Iterator[EdgeLlmServer]:
    with EdgeLlmServer(Rules(), script=says, window=WINDOW, max_input=16_384) as running:
        yield running


@pytest.fixture(scope="module")
def url(server: EdgeLlmServer) -> Iterator[str]:
    faults = EdgeLlm().presumed_faults("0.11.0") | {Fault.LEAKED_END_TOKENS, Fault.PARALLEL_CALLS}
    profile = Profile(
        Kind.EDGE_LLM,
        "0.11.0",
        frozenset((Api.CHAT, Api.MESSAGES, Api.COUNT_TOKENS)),
        {Api.CHAT: CHAT_FIELDS},
        faults,
        (ModelCard(server.model, window=WINDOW, max_input=16_384),),
    )
    profile = profile.replace(apis=sound_apis(profile))
    with gateway(FixedUpstream("edge", server.url, profile)) as address:
        yield address


def data_of(text: str) -> list[dict[str, Any]]:
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


class Loop(Protocol):
    """A client's conversation so far. `step` returns (prompt tokens, calls made)."""

    def step(self, number: int) -> tuple[int, int]: ...


def post(url: str, path: str, body: dict[str, Any]) -> httpx.Response:
    answer = httpx.post(url + path, json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer


class Chat:
    """OpenAI's chat; `as_objects`: the arguments of past calls are sent as objects."""

    def __init__(self, url: str, *, stream: bool = False, as_objects: bool = False) -> None:
        self._url, self._stream, self._as_objects = url, stream, as_objects
        self._messages: list[dict[str, Any]] = [
            {"role": "developer", "content": SYSTEM},
            {"role": "user", "content": TASK},
        ]

    def step(self, number: int) -> tuple[int, int]:
        body: dict[str, Any] = {
            "model": "gpt-5-codex",
            "messages": self._messages,
            "tools": [{"type": "function", "function": {"name": "write_file", "parameters": PARAMETERS}}],
            "tool_choice": "required" if number % 4 == 3 and number < STEPS - 1 else "auto",
            "parallel_tool_calls": False,
            "store": False,
            "user": "somebody",
            "stream_options": {"include_usage": True} if self._stream else None,
            "stream": self._stream,
        }
        answer = post(self._url, "/v1/chat/completions", body)
        message, usage = self._streamed(answer) if self._stream else self._whole(answer)
        calls = message.get("tool_calls") or []
        self._messages.append(self._past(message))
        for call in calls:
            self._messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"wrote {number}"})
        if number % 5 == 2:
            self._messages.append({"role": "system", "content": f"Reminder {number}."})
        return usage["prompt_tokens"], len(calls)

    def _past(self, message: dict[str, Any]) -> dict[str, Any]:
        calls = [
            {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
            for call in message.get("tool_calls") or ()
        ]
        return {**message, "tool_calls": calls} if calls and self._as_objects else message

    def _whole(self, answer: httpx.Response) -> tuple[dict[str, Any], dict[str, Any]]:
        body = answer.json()
        choice = body["choices"][0]
        assert choice["finish_reason"] == ("tool_calls" if choice["message"].get("tool_calls") else "stop")
        return choice["message"], body["usage"]

    def _streamed(self, answer: httpx.Response) -> tuple[dict[str, Any], dict[str, Any]]:
        content, calls, usage = "", list[dict[str, Any]](), dict[str, Any]()
        for chunk in data_of(answer.text):
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                content += choice["delta"].get("content") or ""
                for piece in choice["delta"].get("tool_calls") or ():
                    if piece["index"] == len(calls):
                        calls.append(
                            {"id": piece["id"], "type": "function", "function": {"name": "", "arguments": ""}}
                        )
                    for name, text in piece["function"].items():
                        calls[piece["index"]]["function"][name] += text or ""
        message: dict[str, Any] = {"role": "assistant", "content": content or None}
        return {**message, "tool_calls": calls} if calls else message, usage


class Messages:
    """Claude Code's way: system turns in both places, `thinking`, names of Anthropic's models."""

    def __init__(self, url: str, *, stream: bool = False) -> None:
        self._url, self._stream = url, stream
        self._messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": TASK}]}]

    def step(self, number: int) -> tuple[int, int]:
        required = number % 4 == 3 and number < STEPS - 1
        body = {
            "model": "claude-sonnet-5-5",
            "max_tokens": 4000,
            "system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
            "messages": self._messages,
            "tools": [{"name": "write_file", "description": "Write.", "input_schema": PARAMETERS}],
            "tool_choice": {"type": "any" if required else "auto", "disable_parallel_tool_use": True},
            "metadata": {"user_id": "x"},
            "stream": self._stream,
        }
        answer = post(self._url, "/v1/messages", body)
        message = self._gathered(answer) if self._stream else answer.json()
        calls = [block for block in message["content"] if block["type"] == "tool_use"]
        assert message["stop_reason"] == ("tool_use" if calls else "end_turn")
        self._messages.append({"role": "assistant", "content": message["content"]})
        results: list[Any] = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": f"wrote {number}"} for call in calls
        ]
        self._messages.append({"role": "user", "content": results or "Go on."})
        if number % 5 == 2:
            self._messages.append({"role": "system", "content": f"Reminder {number}."})
        usage = message["usage"]
        return usage["input_tokens"] + (usage.get("cache_read_input_tokens") or 0), len(calls)

    def _gathered(self, answer: httpx.Response) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = []
        message: dict[str, Any] = {}
        for event in data_of(answer.text):
            match event["type"]:
                case "message_start":
                    message = event["message"]
                case "content_block_start":
                    blocks.append({**event["content_block"], "json": ""})
                case "content_block_delta":
                    delta = event["delta"]
                    blocks[-1]["text"] = blocks[-1].get("text", "") + delta.get("text", "")
                    blocks[-1]["json"] += delta.get("partial_json", "")
                case "message_delta":
                    message |= {"stop_reason": event["delta"]["stop_reason"] or message.get("stop_reason")}
                    message["usage"] |= event["usage"]
        for block in blocks:
            text = block.pop("json")
            if block["type"] == "tool_use":
                block["input"] = json.loads(text)
                block.pop("text", None)
        return message | {"content": blocks}


class Responses:
    """Codex' way: everything sent again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._input: list[dict[str, Any]] = [{"role": "user", "content": TASK}]

    def step(self, number: int) -> tuple[int, int]:
        required = number % 4 == 3 and number < STEPS - 1
        body = {
            "model": "gpt-5-codex",
            "instructions": SYSTEM,
            "input": self._input,
            "tools": [{"type": "function", "name": "write_file", "parameters": PARAMETERS, "strict": False}],
            "tool_choice": "required" if required else "auto",
            "parallel_tool_calls": False,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "x",
        }
        answer = post(self._url, "/v1/responses", body).json()
        calls = [item for item in answer["output"] if item["type"] == "function_call"]
        self._input += answer["output"]
        for call in calls:
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": f"wrote {number}"}
            self._input.append(result)
        if number % 5 == 2:
            self._input.append({"role": "developer", "content": f"Reminder {number}."})
        return answer["usage"]["input_tokens"], len(calls)


def run(loop: Loop) -> list[int]:
    """The prompt tokens of every step."""
    counts = []
    for number in range(STEPS):
        num_tokens, num_calls = loop.step(number)
        counts.append(num_tokens)
        assert num_calls == (1 if number < STEPS - 1 else 0), f"step {number}"
    return counts


def test_the_loop_costs_the_same_with_string_and_object_arguments(url: str) -> None:
    counts = run(Chat(url))
    assert counts == sorted(counts)
    assert run(Chat(url, as_objects=True)) == counts
    assert run(Chat(url, stream=True)) == counts


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_loop_of_claude_code(url: str, server: EdgeLlmServer, stream: bool) -> None:
    run(Messages(url, stream=stream))
    assert server.prompts[-1].count("<parameter=content>") >= STEPS - 1, "every past call has its arguments"


def test_the_loop_of_codex(url: str, server: EdgeLlmServer) -> None:
    run(Responses(url))
    assert server.prompts[-1].count("<parameter=content>") >= STEPS - 1


def test_every_step_reads_what_the_steps_before_it_wrote(url: str, server: EdgeLlmServer) -> None:
    run(Chat(url))
    assert all(f"module_{i}.py" in server.prompts[-1] for i in (0, 1, 4, STEPS - 3))
    last = server.requests[-1][1]
    assert [one["role"] for one in last["messages"]].count("system") == 1
    assert flat_content(last["messages"][0]["content"]).endswith("Reminder 7.")
