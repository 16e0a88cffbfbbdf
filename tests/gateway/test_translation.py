"""Every API of clients on an upstream that has chat completions alone, with the official packages; what passes between stays what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator

import anthropic
import httpx
import openai
import pytest

from edgewise.gateway.profile import Api, Fault, Kind
from tests.support.gateway_parts import FixedUpstream, gateway, upstream
from tests.support.scripted_upstream import (
    Asked,
    Reset,
    ScriptedUpstream,
    chat_reply,
    chat_server,
    chat_stream,
    json_answer,
    scripted,
    stream_answer,
)

pytestmark = pytest.mark.http

ARGUMENTS = '{"path": "a.py", "n": 1}'
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}
CHAT_TOOL = {"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": SCHEMA}}
ANTHROPIC_TOOL = {"name": "read", "description": "Reads.", "input_schema": SCHEMA}
RESPONSES_TOOL = {"type": "function", "name": "read", "description": "Reads.", "parameters": SCHEMA}
BODIES = {
    Api.CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    Api.COMPLETIONS: {"prompt": "hi"},
    Api.MESSAGES: {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    Api.RESPONSES: {"input": "hi"},
}
TRANSLATED = [Api.COMPLETIONS, Api.MESSAGES, Api.RESPONSES]

Served = tuple[ScriptedUpstream, str]


@pytest.fixture(scope="module")
def chat_only() -> Iterator[Served]:
    """A server with chat completions alone, whose script each test sets, and a gateway before it."""
    with scripted(chat_server("m")) as server, gateway(upstream(server.url), retry_for_s=0.1) as url:
        yield server, url


def openai_client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)


def anthropic_client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)


def test_messages_in_one_piece_and_streamed(chat_only: Served):
    server, url = chat_only
    server.script = chat_server("m", ["Hello", " there"], call=("read", ARGUMENTS))
    client = anthropic_client(url)
    fields = {
        "model": "claude",
        "max_tokens": 50,
        "system": "Be brief.",
        "tools": [ANTHROPIC_TOOL],
        "messages": [{"role": "user", "content": "Read it."}],
    }
    whole = client.messages.create(**fields)
    with client.messages.stream(**fields) as stream:
        streamed = stream.get_final_message()
    for message in (whole, streamed):
        assert message.model == "m"
        assert message.stop_reason == "tool_use"
        text, call = message.content
        assert text.text == "Hello there"
        assert (call.name, call.input, call.id) == ("read", json.loads(ARGUMENTS), "call_1")
        assert (message.usage.input_tokens, message.usage.output_tokens) == (7, 3)
    sent = server.requests[-1].json
    assert sent["model"] == "m"
    assert [one["role"] for one in sent["messages"]] == ["system", "user"]
    assert sent["tools"] == [CHAT_TOOL]
    assert sent["max_tokens"] == 50 and sent["stream_options"] == {"include_usage": True}


def test_the_result_of_a_call_comes_back_to_the_upstream_as_it_was(chat_only: Served):
    server, url = chat_only
    server.script = chat_server("m")
    history = [
        {"role": "user", "content": "Read it."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "call_1", "name": "read", "input": json.loads(ARGUMENTS)}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "print()"}]},
    ]
    anthropic_client(url).messages.create(
        model="m",
        max_tokens=5,
        tools=[ANTHROPIC_TOOL],
        messages=history,  # type: ignore[arg-type]
    )
    _, call, result = server.requests[-1].json["messages"]
    function = call["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == ("read", json.loads(ARGUMENTS))
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", "call_1", "print()")


def test_responses_in_one_piece_streamed_and_followed(chat_only: Served):
    server, url = chat_only
    server.script = chat_server("m", ["Hello", " there"], call=("read", ARGUMENTS))
    client = openai_client(url)
    first = client.responses.create(model="gpt-5", input="Read it.", tools=[RESPONSES_TOOL])  # type: ignore[list-item]
    with client.responses.stream(model="gpt-5", input="Read it.", tools=[RESPONSES_TOOL]) as stream:  # type: ignore[list-item]
        for _ in stream:
            pass
        streamed = stream.get_final_response()
    for response in (first, streamed):
        assert response.status == "completed" and response.model == "m"
        assert response.output_text == "Hello there"
        call = response.output[-1]
        assert (call.type, call.name, call.arguments, call.call_id) == (
            "function_call",
            "read",
            ARGUMENTS,
            "call_1",
        )
        assert response.usage is not None and response.usage.input_tokens == 7
    server.script = chat_server("m")
    output = {"type": "function_call_output", "call_id": "call_1", "output": "print()"}
    client.responses.create(model="m", input=[output], previous_response_id=streamed.id)  # type: ignore[list-item]
    roles = [one["role"] for one in server.requests[-1].json["messages"]]
    assert roles == ["user", "assistant", "tool"]
    assert client.responses.retrieve(streamed.id).output_text == "Hello there"


def test_completions_in_one_piece_and_streamed(chat_only: Served):
    server, url = chat_only
    server.script = chat_server("m", ["Hello", " there"])
    client = openai_client(url)
    whole = client.completions.create(model="m", prompt="Say", max_tokens=5)
    assert whole.choices[0].text == "Hello there" and whole.model == "m"
    chunks = list(client.completions.create(model="m", prompt="Say", max_tokens=5, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Hello there"
    assert server.requests[-1].json["messages"] == [{"role": "user", "content": "Say"}]
    assert "apply_chat_template" not in server.requests[-1].json


def test_chat_needs_no_translation(chat_only: Served):
    server, url = chat_only
    server.script = chat_server("m", ["Hello", " there"], call=("read", ARGUMENTS))
    client = openai_client(url)
    fields = {"model": "m", "messages": BODIES[Api.CHAT]["messages"], "tools": [CHAT_TOOL]}
    with client.chat.completions.stream(**fields) as stream:  # type: ignore[arg-type]
        message = stream.get_final_completion().choices[0].message
    assert message.content == "Hello there"
    assert message.tool_calls is not None and message.tool_calls[0].function.arguments == ARGUMENTS


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", TRANSLATED)
@pytest.mark.parametrize("status", [400, 401, 404, 413, 429, 500, 503])
def test_an_http_error_stays_one(chat_only: Served, api: Api, status: int, stream: bool):
    server, url = chat_only
    body = {"error": {"message": "the reason", "type": "t", "param": None, "code": "c"}}
    server.script = lambda asked: json_answer(body, status, retry_after="9")
    response = httpx.post(url + api.value, json={"model": "m", "stream": stream, **BODIES[api]})
    assert response.status_code == status
    assert response.headers["retry-after"] == "9"
    assert response.json()["error"]["message"] == "the reason"
    assert (response.json().get("type") == "error") == (api is Api.MESSAGES)


@pytest.mark.parametrize("api", TRANSLATED)
def test_a_stream_that_breaks_off_fails_in_the_clients_api(chat_only: Served, api: Api):
    server, url = chat_only
    server.script = lambda asked: stream_answer(*chat_stream(["a", "b"], model="m")[:2], Reset)
    response = httpx.post(url + api.value, json={"model": "m", "stream": True, **BODIES[api]})
    assert response.status_code == 200
    last = {
        Api.COMPLETIONS: b'data: {"error"',
        Api.MESSAGES: b"event: error\n",
        Api.RESPONSES: b"event: response.failed\n",
    }[api]
    assert last in response.content
    assert b"stopped in the middle" in response.content
    assert b"message_stop" not in response.content and b"response.completed" not in response.content


@pytest.mark.parametrize("api", TRANSLATED)
def test_a_streamed_request_answered_in_one_piece_is_streamed(chat_only: Served, api: Api):
    server, url = chat_only
    server.script = lambda asked: json_answer(chat_reply("all of it", model="m"))
    response = httpx.post(url + api.value, json={"model": "m", "stream": True, **BODIES[api]})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert b"all of it" in response.content


@pytest.mark.parametrize("body", [{}, {"choices": []}, [], "x", {"choices": [1]}, {"error": "no"}])
@pytest.mark.parametrize("api", TRANSLATED)
def test_an_answer_that_is_none_is_a_502(chat_only: Served, api: Api, body: object):
    server, url = chat_only
    server.script = lambda asked: json_answer(body)
    response = httpx.post(url + api.value, json={"model": "m", **BODIES[api]})
    assert response.status_code == 502
    assert response.json()["error"]["message"]


def test_what_translation_cannot_carry_is_named(chat_only: Served):
    server, url = chat_only
    server.script = chat_server("m")
    body = {"model": "m", "prompt": "x", "logprobs": 2, "nonsense": 1}
    response = httpx.post(f"{url}/v1/completions", json=body)
    assert response.status_code == 200
    named = set(response.headers["x-edgewise-dropped-fields"].split(", "))
    assert {"logprobs", "nonsense"} <= named


def test_embeddings_are_not_made_of_chats(chat_only: Served):
    _, url = chat_only
    response = httpx.post(f"{url}/v1/embeddings", json={"model": "m", "input": "x"})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


def with_faults(url: str, *faults: Fault) -> FixedUpstream:
    one = upstream(url)
    one.profile = one.profile.replace(faults=frozenset(faults))
    return one


@pytest.mark.parametrize("stream", [False, True])
def test_a_required_call_that_is_not_made_is_asked_for_again(stream: bool):
    answers = iter(
        [chat_reply("I would rather not.", model="m"), chat_reply(None, model="m", call=("read", ARGUMENTS))]
    )
    with (
        scripted(lambda asked: json_answer(next(answers))) as server,
        gateway(with_faults(server.url, Fault.REQUIRED_CHOICE, Fault.NAMED_CHOICE, Fault.JSON_SCHEMA)) as url,
    ):
        client = openai_client(url)
        fields = {
            "model": "m",
            "messages": BODIES[Api.CHAT]["messages"],
            "tools": [CHAT_TOOL],
            "tool_choice": "required",
        }
        if stream:
            with client.chat.completions.stream(**fields) as events:  # type: ignore[arg-type]
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**fields).choices[0].message  # type: ignore[call-overload]
        assert message.tool_calls[0].function.name == "read"
        assert len(server.requests) == 2
        assert "Call one of the tools" in server.requests[-1].json["messages"][-1]["content"]


def test_a_choice_that_is_refused_is_left_free_and_the_answer_checked():
    answers = iter(
        [chat_reply("I would rather not.", model="m"), chat_reply(None, model="m", call=("read", ARGUMENTS))]
    )

    def refusing(asked: Asked):
        if "tool_choice" in asked.json:
            return json_answer({"error": {"message": "tool_choice must be auto"}}, 400)
        return json_answer(next(answers))

    body = {**BODIES[Api.CHAT], "tools": [CHAT_TOOL], "tool_choice": "required", "stream": False}
    with (
        scripted(refusing) as server,
        gateway(with_faults(server.url, Fault.CHOICE_REFUSED, Fault.JSON_SCHEMA)) as url,
    ):
        reply = httpx.post(f"{url}/v1/chat/completions", json=body)
        assert reply.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "read"


def counting(asked: Asked):
    """Counts 41, in every way there is; which ways there are, the test says."""
    answers = {
        "/v1/chat/completions/input_tokens": {"input_tokens": 41},
        "/apply-template": {"prompt": "rendered"},
        "/tokenize": {"count": 41, "tokens": [0] * 41},
        "/v1/chat/completions": chat_reply("x", model="m")
        | {"usage": {"prompt_tokens": 41, "completion_tokens": 1}},
    }
    return json_answer(answers[asked.path])


@pytest.mark.parametrize(
    ("kind", "missing", "asked"),
    [
        (Kind.LLAMA, [], ["/v1/chat/completions/input_tokens"]),
        (
            Kind.LLAMA,
            ["/v1/chat/completions/input_tokens"],
            ["/v1/chat/completions/input_tokens", "/apply-template", "/tokenize"],
        ),
        (Kind.VLLM, [], ["/tokenize"]),
        (Kind.VLLM, ["/tokenize"], ["/tokenize", "/v1/chat/completions"]),
        (Kind.OPENAI, [], ["/v1/chat/completions"]),
        (Kind.EDGE_LLM, [], ["/v1/chat/completions"]),
    ],
)
def test_tokens_are_counted_by_the_upstream(kind: Kind, missing: list[str], asked: list[str]):
    def answer(one: Asked):
        return json_answer({"error": "no"}, 404) if one.path in missing else counting(one)

    with scripted(answer) as server, gateway(upstream(server.url, kind=kind)) as url:
        body = {"model": "claude", "messages": [{"role": "user", "content": "hi"}], "tools": [ANTHROPIC_TOOL]}
        counted = httpx.post(f"{url}/v1/messages/count_tokens", json=body)
        assert counted.json() == {"input_tokens": 41}
        assert counted.headers["x-edgewise-upstream"] == "one"
        assert [one.path for one in server.requests] == asked
        last = server.requests[-1].json
        if last.get("messages") is not None and asked[-1] == "/v1/chat/completions":
            assert last["max_tokens"] == 1 and not last.get("stream")


@pytest.mark.parametrize("kind", [Kind.LLAMA, Kind.VLLM])
def test_counts_that_are_wrong_are_not_asked_for(kind: Kind):
    one = upstream("", kind=kind)
    one.profile = one.profile.replace(faults=frozenset({Fault.COUNT_TOKENS}))
    with scripted(counting) as server:
        one.url = server.url
        with gateway(one) as url:
            body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
            assert httpx.post(f"{url}/v1/messages/count_tokens", json=body).json() == {"input_tokens": 41}
        assert [asked.path for asked in server.requests] == ["/v1/chat/completions"]


def test_counting_passes_to_an_upstream_that_can():
    with scripted(lambda asked: json_answer({"input_tokens": 5})) as server:
        one = upstream(server.url, apis=[Api.CHAT, Api.MESSAGES, Api.COUNT_TOKENS])
        with gateway(one) as url:
            client = anthropic_client(url)
            counted = client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "hi"}])
            assert counted.input_tokens == 5
            assert server.requests[-1].path == "/v1/messages/count_tokens"


def test_a_prompt_that_is_refused_is_refused_when_counted():
    body = {"error": {"message": "too long", "type": "invalid_request_error", "code": None}}
    with scripted(lambda asked: json_answer(body, 400)) as server, gateway(upstream(server.url)) as url:
        asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        response = httpx.post(f"{url}/v1/messages/count_tokens", json=asked)
        assert (response.status_code, response.json()["error"]["message"]) == (400, "too long")


@pytest.fixture(
    scope="module", params=[Api.CHAT, Api.MESSAGES, Api.RESPONSES], ids=lambda api: api.name.lower()
)
def one_api(request: pytest.FixtureRequest) -> Iterator[str]:
    """A gateway whose upstream speaks one API alone: a second gateway, with a server of chats behind it."""
    script = chat_server("m", ["Hello", " there"], call=("read", ARGUMENTS))
    with (
        scripted(script) as server,
        gateway(upstream(server.url)) as inner,
        gateway(upstream(inner, apis=[request.param])) as url,
    ):
        yield url


@pytest.mark.parametrize("stream", [False, True])
def test_chats_reach_any_api(one_api: str, stream: bool):
    client = openai_client(one_api)
    fields = {"model": "m", "messages": BODIES[Api.CHAT]["messages"], "tools": [CHAT_TOOL], "max_tokens": 50}
    if stream:
        with client.chat.completions.stream(**fields, stream_options={"include_usage": True}) as events:  # type: ignore[arg-type]
            completion = events.get_final_completion()
    else:
        completion = client.chat.completions.create(**fields)  # type: ignore[call-overload]
    choice = completion.choices[0]
    assert choice.message.content == "Hello there"
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls[0].function.arguments.replace(" ", "") == ARGUMENTS.replace(" ", "")
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (7, 3)


@pytest.mark.parametrize("stream", [False, True])
def test_messages_reach_any_api(one_api: str, stream: bool):
    client = anthropic_client(one_api)
    fields = {
        "model": "m",
        "max_tokens": 50,
        "tools": [ANTHROPIC_TOOL],
        "messages": [{"role": "user", "content": "Read it."}],
    }
    if stream:
        with client.messages.stream(**fields) as events:  # type: ignore[arg-type]
            message = events.get_final_message()
    else:
        message = client.messages.create(**fields)  # type: ignore[call-overload]
    text, call = message.content
    assert (text.text, call.name, call.input) == ("Hello there", "read", json.loads(ARGUMENTS))
    assert (message.stop_reason, message.usage.input_tokens, message.usage.output_tokens) == (
        "tool_use",
        7,
        3,
    )


@pytest.mark.parametrize("stream", [False, True])
def test_responses_reach_any_api(one_api: str, stream: bool):
    client = openai_client(one_api)
    fields = {"model": "m", "input": "Read it.", "tools": [RESPONSES_TOOL]}
    if stream:
        with client.responses.stream(**fields) as events:  # type: ignore[arg-type]
            for _ in events:
                pass
            response = events.get_final_response()
    else:
        response = client.responses.create(**fields)  # type: ignore[call-overload]
    assert response.output_text == "Hello there"
    assert json.loads(response.output[-1].arguments) == json.loads(ARGUMENTS)
    assert response.usage.input_tokens == 7
    assert client.responses.retrieve(response.id).output_text == "Hello there"


def test_counts_reach_any_api(one_api: str):
    counted = anthropic_client(one_api).messages.count_tokens(
        model="m", messages=[{"role": "user", "content": "hi"}]
    )
    assert counted.input_tokens == 7


def test_a_translated_message_tells_its_counts_at_the_end():
    """They are not known when it begins."""
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with scripted(chat_server("m")) as server, gateway(upstream(server.url)) as url:
        text = httpx.post(f"{url}/v1/messages", json=body).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    usages = {
        event["type"]: event.get("usage") or (event.get("message") or {}).get("usage") for event in events
    }
    assert usages["message_start"]["input_tokens"] == 0
    assert (usages["message_delta"]["input_tokens"], usages["message_delta"]["output_tokens"]) == (7, 3)
