"""Signs of life while an upstream is silent: of the client API's own kind, between whole events, and nothing else changed."""

from __future__ import annotations

import json

import anthropic
import httpx
import openai
import pytest

from edgewise.gateway.profile import Api
from tests.support.gateway_parts import gateway, upstream
from tests.support.scripted_upstream import (
    chat_stream,
    json_answer,
    scripted,
    stream_answer,
)

pytestmark = pytest.mark.http

BODIES = {
    Api.CHAT: {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    Api.COMPLETIONS: {"model": "m", "prompt": "hi"},
    Api.MESSAGES: {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    Api.RESPONSES: {"model": "m", "input": "hi"},
}


def named(name: str, **fields: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


MESSAGE = [
    named(
        "message_start",
        message={
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 41, "output_tokens": 0},
        },
    ),
    named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    named("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello"}),
    named("content_block_stop", index=0),
    named(
        "message_delta",
        delta={"stop_reason": "end_turn", "stop_sequence": None},
        usage={"output_tokens": 5},
    ),
    named("message_stop"),
]
RESPONSE = {"id": "resp_1", "object": "response", "model": "m", "status": "in_progress", "output": []}
RESPONSES = [
    named("response.created", response=RESPONSE, sequence_number=0),
    named("response.completed", response=RESPONSE | {"status": "completed"}, sequence_number=1),
]
STREAMS = {
    Api.CHAT: chat_stream(["a", "b"], model="m"),
    Api.COMPLETIONS: [b'data: {"id": "c", "choices": [{"index": 0, "text": "a"}]}\n\n', b"data: [DONE]\n\n"],
    Api.MESSAGES: MESSAGE,
    Api.RESPONSES: RESPONSES,
}
SIGNS = {
    Api.CHAT: b'"delta":{}',
    Api.COMPLETIONS: b": working\n\n",
    Api.MESSAGES: b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":null',
    Api.RESPONSES: b'event: response.in_progress\ndata: {"type":"response.in_progress","response":{"id":"resp_1"',
}


def post(url: str, api: Api) -> httpx.Response:
    return httpx.post(url + api.value, json=BODIES[api] | {"stream": True})


@pytest.mark.parametrize("api", STREAMS)
def test_a_silent_upstream_is_covered_between_events_and_its_own_bytes_stay(api: Api):
    first, *rest = STREAMS[api]
    half = len(first) // 2
    pieces = [first[:half], 0.15, first[half:], 0.25, *rest]
    with (
        scripted(lambda asked: stream_answer(*pieces)) as server,
        gateway(upstream(server.url, apis=list(STREAMS)), keep_alive_s=0.1) as url,
    ):
        body = post(url, api).content
    start, rest_start = body.index(first), body.index(b"".join(rest))
    assert b"working" in body[:start] or b"ping" in body[:start], "while the first event was half there"
    assert SIGNS[api] in body[start + len(first) : rest_start]
    assert body.endswith(b"".join(rest)), "no sign after the last word"


@pytest.mark.parametrize("api", STREAMS)
def test_before_the_status_the_client_gets_200_and_signs_of_life(api: Api):
    answer = stream_answer(*STREAMS[api], before_s=0.4)
    with (
        scripted(lambda asked: answer) as server,
        gateway(upstream(server.url, apis=list(STREAMS)), commit_after_s=0.1, keep_alive_s=0.1) as url,
    ):
        response = post(url, api)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream"
    if api is not Api.MESSAGES:
        signs, own = response.content.split(STREAMS[api][0])
        assert signs.count(b": working\n\n") >= 2
        assert own == b"".join(STREAMS[api][1:])


def test_a_message_that_began_without_its_upstream_is_one_message():
    answer = stream_answer(*MESSAGE, before_s=0.4)
    with (
        scripted(lambda asked: answer) as server,
        gateway(upstream(server.url, apis=[Api.MESSAGES]), commit_after_s=0.1, keep_alive_s=0.1) as url,
    ):
        body = post(url, Api.MESSAGES).content
        client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
        with client.messages.stream(**BODIES[Api.MESSAGES]) as stream:
            message = stream.get_final_message()
    assert body.count(b"event: message_start") == 1
    assert body.count(b"event: message_stop") == 1
    assert message.content[0].text == "Hello"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (41, 5)


@pytest.mark.parametrize("api", STREAMS)
def test_an_error_after_the_first_sign_of_life_is_an_event(api: Api):
    answer = json_answer({"error": {"message": "too bad"}}, 500)
    late = type(answer)(answer.status, answer.headers, answer.pieces, 0.3, answer.framing)
    with (
        scripted(lambda asked: late) as server,
        gateway(upstream(server.url, apis=list(STREAMS)), commit_after_s=0.1) as url,
    ):
        response = post(url, api)
    assert response.status_code == 200
    assert b"too bad" in response.content
    assert b"error" in response.content


def test_openais_client_takes_the_signs_for_what_they_are():
    first, *rest = chat_stream(["a", "b"], model="m")
    pieces = [first, 0.3, *rest]
    with (
        scripted(lambda asked: stream_answer(*pieces, before_s=0.3)) as server,
        gateway(upstream(server.url), commit_after_s=0.1, keep_alive_s=0.1) as url,
    ):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        chunks = client.chat.completions.create(**BODIES[Api.CHAT], stream=True)
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "ab"
