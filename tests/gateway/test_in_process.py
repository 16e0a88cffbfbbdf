"""An engine in the gateway's own process: the same answers as over HTTP, and nothing goes on for a client that left."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from edgewise.gateway.config import GatewayConfig, UpstreamConfig
from edgewise.gateway.in_process import ADDRESS
from edgewise.gateway.keys import OpenDoor
from edgewise.gateway.parts import ForwardOptions
from edgewise.gateway.profile import Api, Kind
from edgewise.gateway.run import Gateway
from edgewise.pipeline import Pipeline
from edgewise.server import ServerOptions, create_app
from tests.server.conftest import running
from tests.support.gateway_parts import serving_app
from tests.support.pipelines import make_pipeline
from tests.support.scripted_upstream import chat_server, scripted
from tests.support.waiting import wait_until

pytestmark = pytest.mark.http

TURN = "<|im_end|>\n<|im_start|>assistant\n"
CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "Say hi"}], "temperature": 0, "seed": 1}


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    made = make_pipeline({f"Say hi{TURN}": "Hello there!<|im_end|>"})
    yield made
    made.close()


def gateway_over(pipeline: Pipeline, *others: UpstreamConfig) -> Any:
    own = UpstreamConfig("own", ADDRESS, Kind.EDGEWISE)
    config = GatewayConfig(upstreams=(own, *others))
    local = create_app(pipeline, ServerOptions(page=False))
    return serving_app(Gateway(lambda: config, ForwardOptions(), keys=OpenDoor(), local=local).app)


def asked(url: str, api: Api, **fields: Any) -> Any:
    """An answer without what is new in each."""
    body = {**CHAT, "max_tokens": 20, **fields}
    if api is Api.RESPONSES:
        body = {"model": "scripted", "input": "Say hi", "temperature": 0, "store": False, **fields}
    reply = httpx.post(url + api.value, json=body, timeout=30)
    assert reply.status_code == 200, reply.text
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    return [_plain(one) for one in events or [reply.json()]]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        new = {"id", "created", "created_at", "completed_at", "item_id", "timings"}
        cached = {"prompt_tokens_details", "input_tokens_details", "input_tokens", "cache_read_input_tokens"}
        return {name: _plain(one) for name, one in value.items() if name not in new | cached}
    return value


@pytest.mark.parametrize("stream", [False, True])
def test_the_same_answers_as_over_http(pipeline: Pipeline, stream: bool):
    with running(pipeline) as direct, gateway_over(pipeline) as url:
        for api in (Api.CHAT, Api.MESSAGES, Api.RESPONSES):
            assert asked(url, api, stream=stream) == asked(direct, api, stream=stream)
        missing = httpx.post(url + Api.CHAT.value, json={**CHAT, "temperature": -1})
        assert missing.json() == httpx.post(direct + Api.CHAT.value, json={**CHAT, "temperature": -1}).json()
        assert missing.status_code == 400


def test_it_is_an_upstream_among_others(pipeline: Pipeline):
    with (
        scripted(chat_server("m")) as server,
        gateway_over(pipeline, UpstreamConfig("other", server.url)) as url,
    ):
        names = [one["id"] for one in httpx.get(f"{url}/v1/models").json()["data"]]
        assert names == ["scripted", "m"]
        for model, answered in (("scripted", "own"), ("m", "other"), ("own", "own")):
            reply = httpx.post(url + Api.CHAT.value, json={**CHAT, "model": model}, timeout=30)
            assert reply.headers["x-edgewise-upstream"] == answered
        count = httpx.post(f"{url}/v1/messages/count_tokens", json=CHAT).json()["input_tokens"]
        tokens = httpx.post(f"{url}/tokenize", json={"model": "own", "prompt": "abc"}).json()["count"]
        assert count > 3 and tokens == 3


def test_a_client_that_leaves_ends_the_work():
    """The answer would have 30,000 tokens."""
    pipeline = make_pipeline({}, max_model_len=32_768, num_blocks=8192)
    body = json.dumps({**CHAT, "stream": True, "max_tokens": 30_000}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with gateway_over(pipeline) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(head + body)
            assert connection.recv(100)
            wait_until(lambda: pipeline.engine.stats().num_running == 1)
        wait_until(lambda: pipeline.engine.stats().num_running == 0)
    pipeline.close()
