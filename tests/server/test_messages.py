"""POST /v1/messages and count_tokens over the real engine and a scripted model."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import orjson
import pytest

from edgewise.core.errors import InvalidRequestError
from edgewise.pipeline import Pipeline
from edgewise.protocols.anthropic_stream import AnthropicStreamEncoder
from tests.server.conftest import MakeClient, eventually

URL = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
HI = [{"role": "user", "content": "Say hi"}]
BODY: dict[str, Any] = {"max_tokens": 50, "messages": HI, "temperature": 0}


async def post(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post(URL, json={**BODY, **fields})
    assert response.status_code == 200, response.text
    message: dict[str, Any] = response.json()
    return message


async def stream(client: httpx.AsyncClient, url: str = URL, **fields: Any) -> list[dict[str, Any]]:
    response = await client.post(url, json={**BODY, "stream": True, **fields})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = []
    for event in response.text.split("\n\n")[:-1]:
        name, payload = event.split("\n")
        events.append(json.loads(payload.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


async def count(client: httpx.AsyncClient, **fields: Any) -> int:
    response = await client.post(COUNT, json={"messages": HI, **fields})
    assert response.status_code == 200, response.text
    assert list(response.json()) == ["input_tokens"]
    return int(response.json()["input_tokens"])


def error_of(response: httpx.Response, status: int, kind: str) -> str:
    """The message of an Anthropic error object."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"type", "error", "request_id"} and body["type"] == "error"
    assert response.headers["request-id"] == body["request_id"]
    assert set(body["error"]) == {"type", "message"} and body["error"]["type"] == kind
    return str(body["error"]["message"])


def prompt_tokens(usage: dict[str, Any]) -> int:
    return sum(value for name, value in usage.items() if name.endswith("input_tokens"))


async def test_an_answer_in_one_piece(client: httpx.AsyncClient):
    message = await post(client, model="claude-sonnet-5-5")
    assert message["id"].startswith("msg_") and message["type"] == "message"
    assert (message["role"], message["model"]) == ("assistant", "scripted")
    assert message["content"] == [{"type": "text", "text": "Hello there!"}]
    assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)
    assert message["usage"]["output_tokens"] == 13


async def test_a_stream_says_the_same(client: httpx.AsyncClient):
    whole = await post(client)
    events = await stream(client, URL + "?beta=true")
    text = "".join(e["delta"]["text"] for e in events if e["type"] == "content_block_delta")
    assert text == whole["content"][0]["text"]
    assert [e["type"] for e in events if e["type"] != "content_block_delta"] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert prompt_tokens(events[-2]["usage"]) == prompt_tokens(whole["usage"])


async def test_stop_reasons(client: httpx.AsyncClient):
    assert (await post(client, max_tokens=4))["stop_reason"] == "max_tokens"
    stopped = await post(client, stop_sequences=["nothing", "there"])
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "there")
    assert stopped["content"] == [{"type": "text", "text": "Hello "}]
    events = await stream(client, stop_sequences=["there"])
    assert events[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "there"}


async def test_more_tokens_than_there_is_room_for_are_clamped(client: httpx.AsyncClient):
    message = await post(client, max_tokens=32_000, messages=[{"role": "user", "content": "Say nothing"}])
    assert message["stop_reason"] == "max_tokens"
    assert prompt_tokens(message["usage"]) + message["usage"]["output_tokens"] == 512


async def test_no_tokens_fill_the_cache(client: httpx.AsyncClient):
    message = await post(client, max_tokens=0)
    assert message["content"] == [] and message["usage"]["output_tokens"] == 0
    assert (await post(client))["usage"]["cache_read_input_tokens"] > 0


async def test_a_trailing_assistant_turn_is_continued(client: httpx.AsyncClient):
    message = await post(client, messages=[*HI, {"role": "assistant", "content": "The list is:"}])
    assert message["content"] == [{"type": "text", "text": " one, two"}]


async def test_the_first_event_tells_the_prompt_and_what_of_it_is_cached(client: httpx.AsyncClient):
    system = "Be terse and kind. " * 8
    tokens = await count(client, system=system)
    cold = await stream(client, system=system)
    warm = await stream(client, system=system)
    whole = await post(client, system=system)
    for events, cached in ((cold, 0), (warm, tokens - 1)):
        first, last = events[0]["message"]["usage"], events[-2]["usage"]
        assert first["cache_read_input_tokens"] == last["cache_read_input_tokens"] == cached
        assert first["input_tokens"] == last["input_tokens"] == tokens - cached
    assert whole["usage"]["cache_read_input_tokens"] == tokens - 1
    assert prompt_tokens(whole["usage"]) == tokens


async def test_a_line_that_changes_with_every_request_does_not_void_the_cache(client: httpx.AsyncClient):
    def system(code: str) -> list[dict[str, Any]]:
        texts = (f"x-anthropic-billing-header: cc_version=9.9; cch={code};", "Be terse. " * 10)
        return [{"type": "text", "text": text} for text in texts]

    first = await post(client, system=system("a1b2"))
    second = await post(client, system=system("c3d4"))
    assert second["usage"]["input_tokens"] <= 2
    assert prompt_tokens(first["usage"]) == prompt_tokens(second["usage"])


async def test_counting_equals_what_the_request_reports(client_of: MakeClient, make: Callable[..., Pipeline]):
    client = client_of(make(max_model_len=2048))
    conversation = [
        *HI,
        {"role": "system", "content": "A reminder"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "clock", "input": {"zone": "Zürich"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "12:00"}]},
    ]
    for fields in (
        {},
        {"system": "You are terse"},
        {"system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "messages": conversation},
        {"tools": [{"name": f"tool_{i}", "input_schema": {"type": "object"}} for i in range(5)]},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    ):
        message = await post(client, max_tokens=1, **fields)
        assert await count(client, **fields) == prompt_tokens(message["usage"]), fields


@pytest.mark.slow
async def test_counting_does_not_wait_for_answers(make: Callable[..., Pipeline], client_of: MakeClient):
    client = client_of(make(model={"step_delay_s": 0.5}), request_queue_size=1)
    running = asyncio.create_task(client.post(URL, json={**BODY, "max_tokens": 3}))
    await asyncio.sleep(0.1)
    began = time.monotonic()
    assert await count(client) > 0
    assert time.monotonic() - began < 0.5
    assert (await running).status_code == 200


async def test_a_prompt_that_does_not_fit_is_counted_and_refused(client: httpx.AsyncClient):
    messages = [{"role": "user", "content": "x" * 600}]
    tokens = await count(client, messages=messages)
    assert tokens > 600
    for streamed in (False, True):
        response = await client.post(URL, json={**BODY, "messages": messages, "stream": streamed})
        message = error_of(response, 400, "invalid_request_error")
        assert message == f"prompt is too long: {tokens} tokens > 512 maximum"


async def test_an_image_in_a_result_is_a_note_and_elsewhere_a_400(client: httpx.AsyncClient):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    calls = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]}
    results = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [image]}]}
    await post(client, messages=[*HI, calls, results], max_tokens=1)
    response = await client.post(URL, json={**BODY, "messages": [{"role": "user", "content": [image]}]})
    message = error_of(response, 400, "invalid_request_error")
    assert "messages[0].content[0]" in message and "image" in message


async def test_what_has_no_effect_is_said_once(client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture):
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    for _ in range(2):
        await post(
            client, max_tokens=1, tools=tools, context_management={"edits": []}, metadata={"user_id": "u"}
        )
    warned = [r.getMessage() for r in caplog.records if "is ignored" in r.getMessage()]
    assert len(warned) == 2
    assert "tools.web_search_20250305" in warned[1] and "context_management" in warned[0]


async def test_an_error_in_a_schema_is_named_as_this_api_names_it(
    pipeline: Pipeline, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object, **__: object) -> None:
        raise InvalidRequestError("tools[3].parameters.properties.x.pattern cannot be kept", param="tools")

    monkeypatch.setattr(pipeline, "prepare_chat", refuse)
    for url in (URL, COUNT):
        message = error_of(await client.post(url, json=BODY), 400, "invalid_request_error")
        assert message == "tools[3].input_schema.properties.x.pattern cannot be kept"


@pytest.mark.parametrize("url", [URL, COUNT])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"x"', b'{"a": NaN}', b"\xff"])
async def test_bodies_that_are_not_json_objects(client: httpx.AsyncClient, url: str, content: bytes):
    error_of(await client.post(url, content=content), 400, "invalid_request_error")


async def test_max_tokens_is_required_and_the_message_names_it(client: httpx.AsyncClient):
    message = error_of(await client.post(URL, json={"messages": HI}), 400, "invalid_request_error")
    assert message == "max_tokens is required"


async def test_keys(pipeline: Pipeline, client_of: MakeClient):
    client = client_of(pipeline, api_keys=("one",))
    for url in (URL, COUNT):
        for headers in ({}, {"x-api-key": "two"}, {"authorization": "Bearer two"}):
            error_of(await client.post(url, json=BODY, headers=headers), 401, "authentication_error")
        headers = {"x-api-key": "one", "authorization": "Bearer other", "anthropic-beta": "effort-2025-11-24"}
        assert (await client.post(url, json=BODY, headers=headers)).status_code == 200
    assert (await client.post("/v1/messagesx", json=BODY)).json()["error"]["code"] == "invalid_api_key"


async def test_other_refusals_have_their_kinds(pipeline: Pipeline, client_of: MakeClient):
    client = client_of(pipeline, max_body_bytes=300, strict_model_names=True)
    error_of(await client.post(URL, content=orjson.dumps({"x": "y" * 300})), 413, "request_too_large")
    error_of(await client.post(URL, json={**BODY, "model": "nobody"}), 404, "not_found_error")
    error_of(await client.post(COUNT, json={**BODY, "model": "nobody"}), 404, "not_found_error")
    error_of(await client.post(URL + "/batches", json={}), 404, "not_found_error")
    error_of(await client.get(URL), 405, "invalid_request_error")
    assert "param" in (await client.get("/v1/nothing")).json()["error"], "other paths speak OpenAI's"


async def test_the_error_shape_below_a_root_path(pipeline: Pipeline, client_of: MakeClient):
    client = client_of(pipeline, root_path="/edge")
    for url in (URL, "/edge" + URL):
        error_of(await client.post(url, json={}), 400, "invalid_request_error")


async def test_too_many_requests_are_told_to_come_back(make: Callable[..., Pipeline], client_of: MakeClient):
    client = client_of(make(model={"step_delay_s": 0.02}), request_queue_size=1)
    responses = await asyncio.gather(*(client.post(URL, json={**BODY, "max_tokens": 5}) for _ in range(3)))
    refused = [r for r in responses if r.status_code != 200]
    assert len(refused) == 2
    for response in refused:
        error_of(response, 529, "overloaded_error")
        assert response.headers["retry-after"] == "1"


async def test_a_dead_engine_is_an_api_error(pipeline: Pipeline, client: httpx.AsyncClient):
    pipeline.close()
    error_of(await client.post(URL, json=BODY), 500, "api_error")


async def test_an_engine_that_fails_mid_stream_ends_it_with_an_error_event(
    make: Callable[..., Pipeline], client_of: MakeClient
):
    client = client_of(make(model={"failures": {4: RuntimeError("broken memory")}}))
    events = await stream(client)
    assert [e["type"] for e in events].count("error") == 1 and events[-1]["type"] == "error"
    assert events[-1]["error"]["type"] == "api_error"


async def test_a_bug_while_encoding_is_an_error_event(
    pipeline: Pipeline, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> bytes:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(AnthropicStreamEncoder, "_encode_delta", broken)
    events = await stream(client)
    assert events[-1]["type"] == "error" and "secret" not in events[-1]["error"]["message"]
    assert eventually(lambda: pipeline.engine.stats().num_running == 0)
