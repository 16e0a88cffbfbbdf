"""The imitation of Edge-LLM does what its switches say."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.edge_llm_rules import Rules
from tests.support.edge_llm_server import EdgeLlmServer

pytestmark = pytest.mark.http

ARGUMENTS = {"path": "fizz.py", "content": "x = 1\n"}
TOOL = {
    "type": "function",
    "function": {
        "name": "write_file",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


@pytest.fixture
def server() -> Iterator[EdgeLlmServer]:
    with EdgeLlmServer() as running:
        yield running


def ask(server: EdgeLlmServer, path: str = "/v1/chat/completions", **body: Any) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "hello"}], **body}
    return httpx.post(server.url + path, json=body)


def history(arguments: Any) -> list[dict[str, Any]]:
    call = {"id": "c1", "type": "function", "function": {"name": "write_file", "arguments": arguments}}
    return [
        {"role": "user", "content": "Create fizz.py."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "wrote fizz.py"},
    ]


def test_string_arguments_cost_what_they_say_only_where_they_are_rendered(server: EdgeLlmServer) -> None:
    def tokens(arguments: Any) -> int:
        reply = ask(server, messages=history(arguments), tools=[TOOL])
        return int(reply.json()["usage"]["prompt_tokens"])

    assert tokens(json.dumps(ARGUMENTS)) < tokens(ARGUMENTS)
    server.rules = Rules.none()
    assert tokens(json.dumps(ARGUMENTS)) == tokens(ARGUMENTS)


SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "hello"}

REFUSED: list[tuple[str, dict[str, Any], int]] = [
    ("unknown_fields_refused", {"user": "me"}, 400),
    ("model_name_checked", {"model": "gpt-4o"}, 404),
    ("penalties_refused", {"frequency_penalty": 0.5}, 400),
    ("only_one_choice", {"n": 2}, 400),
    ("late_system_raises", {"messages": [USER, SYSTEM]}, 500),
    ("several_system_raises", {"messages": [SYSTEM, SYSTEM, USER]}, 500),
    ("developer_role_raises", {"messages": [{**SYSTEM, "role": "developer"}, USER]}, 500),
    (
        "dangling_results_refused",
        {"messages": [USER, {"role": "tool", "tool_call_id": "x", "content": ""}]},
        400,
    ),
    ("arguments_must_be_json", {"messages": history("{")}, 400),
    ("auto_choice_needs_flag", {"tools": [TOOL]}, 400),
    ("object_arguments_refused", {"messages": history({})}, 400),
    ("limit_refused", {"max_tokens": 100_000}, 400),
]


@pytest.mark.parametrize(("rule", "body", "status"), REFUSED, ids=[one[0] for one in REFUSED])
def test_a_request_is_refused_exactly_while_its_rule_is_on(
    server: EdgeLlmServer, rule: str, body: dict[str, Any], status: int
) -> None:
    server.rules = Rules.none().with_(**{rule: True})
    refused = ask(server, **body)
    assert refused.status_code == status
    assert refused.json()["error"].keys() == {"message", "type", "param", "code"}
    server.rules = Rules.none()
    assert ask(server, **body).status_code == 200


def test_a_full_queue_is_429_and_on_messages_529_without_retry_after(server: EdgeLlmServer) -> None:
    server.busy = True
    refused = ask(server)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    refused = ask(server, "/v1/messages", max_tokens=5)
    assert refused.status_code == 529
    assert "retry-after" not in refused.headers
    assert refused.json() == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "The request queue is full."},
    }


def test_choices_are_enforced_only_without_their_rules(server: EdgeLlmServer) -> None:
    named = {"type": "function", "function": {"name": "write_file"}}
    for choice in ("required", named):
        assert (
            "tool_calls" not in ask(server, tools=[TOOL], tool_choice=choice).json()["choices"][0]["message"]
        )
    server.rules = Rules.none()
    for choice in ("required", named):
        message = ask(server, tools=[TOOL], tool_choice=choice).json()["choices"][0]["message"]
        assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"path": "example 0"}


def test_a_key_is_asked_below_v1_only() -> None:
    with EdgeLlmServer(api_key="secret") as server:
        assert ask(server).status_code == 401
        assert httpx.get(server.url + "/health").status_code == 200
        for header in ({"x-api-key": "secret"}, {"authorization": "Bearer secret"}):
            assert httpx.get(server.url + "/v1/models", headers=header).status_code == 200


def events(response: httpx.Response) -> list[Any]:
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_streams_carry_every_key_and_usage_when_asked(server: EdgeLlmServer) -> None:
    reply = ask(
        server,
        stream=True,
        stream_options={"include_usage": True},
        tools=[TOOL],
        messages=[{"role": "user", "content": "Write both files."}],
    )
    assert reply.text.endswith("data: [DONE]\n\n")
    *chunks, last = events(reply)
    assert last["usage"]["total_tokens"] > 0
    assert chunks[0]["choices"][0]["delta"].keys() == {
        "role",
        "content",
        "reasoning_content",
        "tool_calls",
        "audio",
    }
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"]["tool_calls"] or ()]
    assert {call["index"] for call in calls} == {0, 1}
    server.fail_after = 2
    assert "error" in events(ask(server, stream=True))[-1]


def test_messages_take_only_two_roles_and_lose_tool_input(server: EdgeLlmServer) -> None:
    assert ask(server, "/v1/messages", max_tokens=5, messages=[USER, SYSTEM]).status_code == 400
    use = {"type": "tool_use", "id": "t1", "name": "write_file", "input": ARGUMENTS}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "done"}
    turns = [USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    lost = ask(server, "/v1/messages/count_tokens", messages=turns).json()["input_tokens"]
    server.rules = Rules.none()
    assert ask(server, "/v1/messages/count_tokens", messages=turns).json()["input_tokens"] > lost
    assert ask(server, "/v1/messages", max_tokens=50, messages=turns).json()["stop_reason"] == "end_turn"
    streamed = events(ask(server, "/v1/messages", max_tokens=50, messages=turns, stream=True))
    assert [streamed[0]["type"], streamed[-1]["type"]] == ["message_start", "message_stop"]


def test_end_marks_leak_unless_told_otherwise(server: EdgeLlmServer) -> None:
    assert ask(server).json()["choices"][0]["message"]["content"].endswith("<|endoftext|>")
    server.rules = Rules.none()
    assert not ask(server).json()["choices"][0]["message"]["content"].endswith(">")


def test_what_it_lists_of_itself(server: EdgeLlmServer) -> None:
    card = httpx.get(server.url + "/v1/models").json()["data"][0]
    assert (card["id"], card["max_model_len"]) == (server.model, 8192)
    schema = httpx.get(server.url + "/openapi.json").json()["components"]["schemas"]["ChatCompletionRequest"]
    assert len(schema["properties"]) == 34
    assert schema["additionalProperties"] is False
    assert httpx.get(server.url + "/health").json()["capabilities"]["max_input_len"] == 4096


def active(server: EdgeLlmServer) -> int:
    return int(httpx.get(server.url + "/health").json()["active_requests"])


@pytest.mark.parametrize("never_cancels", [False, True])
def test_an_answer_whose_client_left_ends_unless_told_otherwise(never_cancels: bool) -> None:
    with EdgeLlmServer(Rules.none().with_(never_cancels=never_cancels), token_s=0.01) as server:
        body = {"messages": [{"role": "user", "content": "count"}], "stream": True, "max_tokens": 300}
        with httpx.stream("POST", server.url + "/v1/chat/completions", json=body) as reply:
            next(reply.iter_bytes())
        time.sleep(0.3)
        assert active(server) == never_cancels
        assert server.cancelled == (not never_cancels)


def test_a_slow_prompt_is_silent_only_by_rule_and_quick_once_cached() -> None:
    with EdgeLlmServer(Rules.none(), prefill_s=0.005, keep_alive_s=0.02) as server:
        first = ask(server, stream=True)
        assert first.text.startswith(": ping")
        assert ask(server).json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        server.rules = Rules.none().with_(silent_prefill=True, no_prefix_cache=True)
        assert ask(server, stream=True).text.startswith("data: ")
        assert ask(server).json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
