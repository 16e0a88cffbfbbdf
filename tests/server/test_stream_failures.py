"""Errors after the headers: one error event, the end mark, nothing left running."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from edgewise.pipeline import Pipeline, Stream
from edgewise.protocols.chat_stream import ChatStreamEncoder
from edgewise.protocols.completions import CompletionStreamEncoder
from tests.server.conftest import MakeClient, eventually

CHAT = {"messages": [{"role": "user", "content": "Say hi"}], "stream": True, "temperature": 0}


def events(response: httpx.Response) -> list[str]:
    assert response.status_code == 200
    return [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")]


def broken(*_: object) -> Any:
    raise ZeroDivisionError("secret detail")


async def test_a_bug_while_encoding_is_an_error_event(
    pipeline: Pipeline, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ChatStreamEncoder, "_encode_delta", broken)
    *_, error, end = events(await client.post("/v1/chat/completions", json=CHAT))
    assert end == "[DONE]" and json.loads(error)["error"]["code"] == "internal_error"
    assert "secret" not in error
    assert eventually(lambda: pipeline.engine.stats().num_running == 0)


async def test_a_bug_in_one_of_many_streams_does_not_look_like_an_end(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Stream, "_take_ready", broken)
    body = {"prompt": ["Once upon", "One"], "stream": True}
    *_, error, end = events(await client.post("/v1/completions", json=body))
    assert end == "[DONE]" and json.loads(error)["error"]["code"] == "internal_error"
    whole = await client.post("/v1/completions", json={**body, "stream": False})
    assert whole.status_code == 500


async def test_an_engine_failure_ends_many_prompts_with_one_error(
    make: Callable[..., Pipeline], client_of: MakeClient
):
    client = client_of(make(model={"step_delay_s": 0.01, "failures": {60: RuntimeError("broken memory")}}))
    body = {"prompt": ["x", "y", "z"], "max_tokens": 200, "stream": True}
    found = events(await client.post("/v1/completions", json=body))
    assert found.count("[DONE]") == 1 and found[-1] == "[DONE]"
    assert ["error" in json.loads(event) for event in found[:-1]].count(True) == 1


async def test_places_are_given_back_after_failures(
    pipeline: Pipeline, client_of: MakeClient, monkeypatch: pytest.MonkeyPatch
):
    client = client_of(pipeline, request_queue_size=1)
    monkeypatch.setattr(CompletionStreamEncoder, "_encode_finish", broken)
    for _ in range(3):
        response = await client.post("/v1/completions", json={"prompt": "One", "stream": True})
        assert events(response)[-1] == "[DONE]"
