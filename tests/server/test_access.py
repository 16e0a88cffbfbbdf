"""Who gets in: API keys, CORS, host names, the bound on requests inside, and the warning when anybody may."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import httpx
import pytest

from edgewise.pipeline import Pipeline
from edgewise.server import ServerOptions, create_app
from edgewise.serving.auth import is_loopback
from tests.server.conftest import MakeClient

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "Say hi"}], "max_tokens": 1}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": "Basic one"}, 401),
        ({"authorization": "Bearer onex"}, 401),
        ({"x-api-key": ""}, 401),
        ({"authorization": "Bearer one"}, 200),
        ({"authorization": "bearer two"}, 200),
        ({"x-api-key": "two"}, 200),
        ({"authorization": "Bearer wrong", "x-api-key": "one"}, 200),
    ],
)
async def test_keys(pipeline: Pipeline, client_of: MakeClient, headers: dict[str, str], status: int):
    client = client_of(pipeline, api_keys=("one", "two"))
    response = await client.post(CHAT, json=BODY, headers=headers)
    assert response.status_code == status
    if status == 401:
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.json()["error"]["code"] == "invalid_api_key"


async def test_with_keys_only_liveness_is_open(pipeline: Pipeline, client_of: MakeClient):
    client = client_of(pipeline, api_keys=("one",))
    for path in ("/health", "/ping", "/"):
        assert (await client.get(path)).status_code == 200
    for path in ("/v1/models", "/metrics", "/props", "/server_info", "/version", "/nothing"):
        assert (await client.get(path)).status_code == 401
    assert (await client.post("/reset_prefix_cache")).status_code == 401


async def test_liveness_is_open_below_a_root_path_too(pipeline: Pipeline, client_of: MakeClient):
    client = client_of(pipeline, api_keys=("one",), root_path="/edge/")
    for path, status in {
        "/health": 200,
        "/edge/health": 200,
        "/edge/v1/models": 401,
        "/edgehealth": 401,
    }.items():
        assert (await client.get(path)).status_code == status, path
    allowed = await client.get("/edge/v1/models", headers={"x-api-key": "one"})
    assert allowed.status_code == 200


async def test_cors_is_off_unless_configured(pipeline: Pipeline, client_of: MakeClient):
    preflight = {
        "origin": "http://page.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    closed = client_of(pipeline)
    assert "access-control-allow-origin" not in (await closed.options(CHAT, headers=preflight)).headers
    assert "access-control-allow-origin" not in (await closed.get("/health", headers=preflight)).headers
    open_ = client_of(pipeline, allowed_origins=("http://page.example",), api_keys=("one",))
    response = await open_.options(CHAT, headers=preflight)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == "http://page.example"
    refused = await open_.post(CHAT, json=BODY, headers={"origin": "http://page.example"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "http://page.example", (
        "a page may read the refusal"
    )
    other = await open_.get("/health", headers={"origin": "http://evil.example"})
    assert "access-control-allow-origin" not in other.headers


async def test_host_names_can_be_bounded(pipeline: Pipeline, client_of: MakeClient):
    client = client_of(pipeline, allowed_hosts=("localhost",))
    assert (await client.get("/health")).status_code == 400
    assert (await client.get("/health", headers={"host": "localhost"})).status_code == 200


async def test_requests_beyond_the_bound_are_told_to_come_back(
    make: Callable[..., Pipeline], client_of: MakeClient
):
    pipeline = make(model={"step_delay_s": 0.02})
    client = client_of(pipeline, request_queue_size=2)
    many = [client.post(CHAT, json={**BODY, "max_tokens": 5}) for _ in range(6)]
    responses = await asyncio.gather(*many)
    assert sorted(r.status_code for r in responses) == [200, 200, 503, 503, 503, 503]
    refused = next(r for r in responses if r.status_code == 503)
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["code"] == "server_overloaded"
    assert (await client.post(CHAT, json=BODY)).status_code == 200, "places are given back"
    assert "edgewise:requests_refused_total" in (await client.get("/metrics")).text


async def test_failed_requests_give_their_place_back(pipeline: Pipeline, client_of: MakeClient):
    client = client_of(pipeline, request_queue_size=1)
    for _ in range(3):
        assert (await client.post(CHAT, json={"messages": []})).status_code == 400
        assert (await client.post(CHAT, content=b"{")).status_code == 400
        assert (await client.post(CHAT, json={**BODY, "stream": True})).status_code == 200
        assert (await client.post(CHAT, json=BODY)).status_code == 200


@pytest.mark.parametrize(
    ("host", "keys", "warned"),
    [
        ("0.0.0.0", (), True),
        ("192.168.1.5", (), True),
        ("0.0.0.0", ("k",), False),
        ("127.0.0.1", (), False),
        ("::1", (), False),
    ],
)
def test_a_warning_when_anybody_may_use_it(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture, host: str, keys: tuple[str, ...], warned: bool
):
    with caplog.at_level(logging.WARNING):
        create_app(pipeline, ServerOptions(host=host, api_keys=keys))
    assert any("without an API key" in r.getMessage() for r in caplog.records) == warned


def test_loopback_addresses():
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(
        map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.example.org", ""))
    )


async def test_a_head_request_probes_the_root(client: httpx.AsyncClient):
    response = await client.head("/")
    assert (response.status_code, response.content) == (200, b"")
