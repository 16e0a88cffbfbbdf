"""Everything that must be refused before a header, with an OpenAI error object, and never with 422 or 500."""

from __future__ import annotations

import time
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.pipeline import Pipeline
from edgewise.serving import bodies
from edgewise.serving.bodies import decode_json, weight_of
from edgewise.serving.errors import HttpError
from tests.server.conftest import MakeClient
from tests.support.examples import examples

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HI = [{"role": "user", "content": "Say hi"}]


def error_of(response: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.slow
@pytest.mark.parametrize("url", [CHAT, TEXT, "/tokenize", "/detokenize"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"  ",
        b"{",
        b"{bad",
        b'{"a": NaN}',
        b'{"a": "\\ud800"}',
        b"\xff\xfe",
        b"[" * 3000,
        b"null",
        b"[]",
        b'"x"',
        b"1",
    ],
)
async def test_bodies_that_are_not_json_objects(client: httpx.AsyncClient, url: str, content: bytes):
    error_of(await client.post(url, content=content))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("url", "body", "param"),
    [
        (CHAT, {"messages": [{"role": "banana", "content": "x"}]}, "messages[0].role"),
        (CHAT, {"messages": HI, "temperature": -0.5}, "temperature"),
        (CHAT, {"messages": HI, "max_tokens": 200_000}, "max_tokens"),
        (CHAT, {"messages": HI, "logit_bias": {"99999": 1}}, "logit_bias"),
        (
            CHAT,
            {"messages": HI, "tools": [{"type": "function", "function": {"name": "f"}}] * 2},
            "tools[1].function.name",
        ),
        (CHAT, {"messages": HI, "tool_choice": "required"}, "tool_choice"),
        (CHAT, {"messages": HI, "guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
        (TEXT, {"prompt": "a", "guided_regex": "a", "grammar": "root ::= x"}, "grammar"),
        (CHAT, {"messages": HI, "chat_template": "{{ 1 }}"}, "chat_template"),
        (
            CHAT,
            {"messages": [{"role": "tool", "content": "x", "tool_call_id": "c"}]},
            "messages[0].tool_call_id",
        ),
        (CHAT, {"messages": []}, "messages"),
        (TEXT, {"prompt": []}, "prompt"),
        (TEXT, {"prompt": ""}, "prompt"),
        (TEXT, {"prompt": [70_000]}, "prompt"),
        (TEXT, {"prompt": "a", "stop": ""}, "stop"),
        (TEXT, {"prompt": "a", "allowed_token_ids": [99_999]}, "allowed_token_ids"),
        (TEXT, {"prompt": "a", "n": 0}, "n"),
        (TEXT, {"prompt": "a", "cache_salt": ""}, "cache_salt"),
        (CHAT, {"messages": HI, "cache_salt": ""}, "cache_salt"),
        (TEXT, {"prompt": "a", "bad_words": ["a"] * 1025}, "bad_words"),
        (TEXT, {"prompt": "a", "bad_words": ["a" * 4097]}, "bad_words"),
        (TEXT, {"prompt": "a", "stop_token_ids": [1] * 4097}, "stop_token_ids"),
    ],
)
async def test_bad_requests_fail_before_any_header(
    client: httpx.AsyncClient, url: str, body: dict[str, Any], param: str, stream: bool
):
    assert error_of(await client.post(url, json={**body, "stream": stream}))["param"] == param


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_too_long_says_both_numbers(client: httpx.AsyncClient, stream: bool):
    body = {"messages": [{"role": "user", "content": "x" * 600}], "stream": stream}
    error = error_of(await client.post(CHAT, json=body))
    assert error["code"] == "context_length_exceeded"
    assert "maximum context length is 512 tokens" in error["message"]
    tokens = (await client.post("/tokenize", json={"messages": body["messages"]})).json()["count"]
    assert str(tokens) in error["message"]


async def test_sixteen_megabytes_of_one_character_are_refused_quickly(client: httpx.AsyncClient):
    content = orjson.dumps({"messages": [{"role": "user", "content": "a" * (16 << 20)}]})
    began = time.monotonic()
    error = error_of(await client.post(CHAT, content=content))
    assert error["code"] == "context_length_exceeded"
    assert time.monotonic() - began < 5


async def test_a_body_over_the_limit_is_413(pipeline: Pipeline, client_of: MakeClient):
    client = client_of(pipeline, max_body_bytes=1000)
    assert error_of(await client.post(CHAT, content=b"x" * 1001), 413)["code"] == "body_too_large"

    async def pieces():
        for _ in range(20):
            yield b"y" * 100

    assert error_of(await client.post(CHAT, content=pieces()), 413)["code"] == "body_too_large"
    ok = orjson.dumps({"messages": HI, "max_tokens": 1, "user": "u" * 900})
    assert len(ok) <= 1000 and (await client.post(CHAT, content=ok)).status_code == 200


def test_a_large_body_of_millions_of_values_is_refused_before_decoding():
    for content in (
        b'{"prompt": [' + b"1," * 2_500_000 + b"1]}",
        b"[" + b"[]," * 350_000 + b"[]]",
        b'["' + b'","' * 350_000 + b'"]',
    ):
        with pytest.raises(HttpError) as caught:
            decode_json(content)
        assert caught.value.status == 413
    long_text = {"prompt": 'a, "quoted", [list] \\ ' * 300_000}
    assert decode_json(orjson.dumps(long_text)) == long_text, "commas and brackets inside text are not values"


@settings(max_examples=examples(50), deadline=None)
@given(
    st.recursive(st.text('a"\\\\[{,', max_size=6) | st.integers(0, 9), lambda x: st.lists(x, max_size=4)),
    st.integers(1, 9),
)
def test_the_weight_of_a_body_does_not_depend_on_how_it_is_sliced(value: Any, slice_bytes: int):
    body = orjson.dumps(value)
    with pytest.MonkeyPatch.context() as patch:
        whole = weight_of(body, 1000)
        patch.setattr(bodies, "_SLICE_BYTES", slice_bytes)
        assert weight_of(body, 1000) == whole


async def test_unknown_paths_and_methods_have_error_objects(client: httpx.AsyncClient):
    assert error_of(await client.get("/v1/nothing"), 404)["code"] == "not_found"
    assert error_of(await client.get(CHAT), 405)["code"] == "method_not_allowed"
    assert error_of(await client.get("/v1/models/nobody"), 404)["code"] == "model_not_found"


async def test_an_unexpected_error_is_500_and_keeps_its_details(
    pipeline: Pipeline, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(pipeline, "prepare_chat", broken)
    error = error_of(await client.post(CHAT, json={"messages": HI}), 500)
    assert "secret" not in error["message"]
    monkeypatch.undo()
    assert (await client.post(CHAT, json={"messages": HI, "max_tokens": 1})).status_code == 200


async def test_a_dead_engine_fails_requests_and_health(pipeline: Pipeline, client: httpx.AsyncClient):
    pipeline.close()
    assert error_of(await client.post(CHAT, json={"messages": HI}), 500)["code"] == "engine_dead"
    assert (await client.get("/health")).status_code == 503
    assert (await client.get("/ping")).status_code == 503


async def test_ignored_fields_are_warned_of_once_per_client_and_counted(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
):
    for _ in range(3):
        body = {"messages": HI, "max_tokens": 1, "user": "me", "x\n" + "y" * 200: 1}
        assert (await client.post(CHAT, json=body)).status_code == 200
    warned = [r.getMessage() for r in caplog.records if "is ignored" in r.getMessage()]
    assert len(warned) == 2
    assert "\n" not in "".join(warned)
    assert (
        'edgewise:ignored_fields_total{engine="0",field="user",model_name="scripted"} 3.0'
        in (await client.get("/metrics")).text
    )


async def test_a_priority_that_orders_nothing_is_said(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
):
    await client.post(CHAT, json={"messages": HI, "max_tokens": 1, "priority": 3})
    assert any("field 'priority'" in record.getMessage() for record in caplog.records)
