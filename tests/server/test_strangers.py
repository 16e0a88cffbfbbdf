"""Web pages of strangers: what a browser sends for them is refused where there are no keys; programs and own pages are not."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from edgewise.pipeline import Pipeline
from edgewise.serving.strangers import is_own_name
from tests.server.conftest import MakeClient

BROWSER = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"}
EVIL = "http://evil.example:8000"


@pytest.mark.parametrize(
    "name",
    ["localhost", "jetson", "jetson.local", "a.localhost", "127.0.0.1", "::1", "192.168.1.5", "x.lan."],
)
def test_names_that_no_stranger_can_own(name: str):
    assert is_own_name(name)


@pytest.mark.parametrize("name", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "local.com"])
def test_names_that_one_can(name: str):
    assert not is_own_name(name)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "proxy.example.com"}, 200),  # a program behind somebody's proxy
        (BROWSER, 200),
        ({**BROWSER, "host": "192.168.1.5:8000"}, 200),
        ({**BROWSER, "host": "evil.example:8000"}, 403),  # rebound: it leads here now
        ({**BROWSER, "host": "localhost:8000", "origin": EVIL}, 403),
        ({**BROWSER, "host": "localhost:8000", "origin": "null"}, 403),
        ({**BROWSER, "host": "localhost:8000", "origin": "http://localhost:8000"}, 200),
        ({**BROWSER, "host": "localhost:8000", "origin": "http://localhost:3000"}, 200),
        ({**BROWSER, "host": "localhost:8000", "origin": "vscode-webview://abc"}, 200),
        ({**BROWSER, "host": "localhost:8000", "origin": "http://[evil"}, 403),
        ({**BROWSER, "host": "[evil"}, 403),
        ({"host": "[evil"}, 200),
    ],
)
async def test_who_is_answered_without_a_key(client: httpx.AsyncClient, headers: dict[str, str], status: int):
    response = await client.get("/v1/models", headers=headers)
    assert response.status_code == status
    assert status == 200 or response.json()["error"]["code"] == "foreign_page"


async def test_a_simple_post_of_a_page_elsewhere_runs_nothing(client: httpx.AsyncClient, pipeline: Pipeline):
    headers = {**BROWSER, "origin": EVIL, "content-type": "text/plain"}
    body = b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}'
    response = await client.post("/v1/chat/completions", content=body, headers=headers)
    assert response.status_code == 403 and pipeline.engine.stats().steps == 0


@pytest.mark.parametrize(
    ("options", "headers"),
    [
        ({"allowed_origins": (EVIL,)}, {"origin": EVIL}),
        ({"allowed_origins": ("*",)}, {"origin": "null"}),
        ({"allowed_hosts": ("evil.example",)}, {"host": "evil.example"}),
        ({"api_keys": ("k",)}, {"host": "evil.example", "origin": EVIL, "authorization": "Bearer k"}),
    ],
)
async def test_what_was_allowed_is(
    pipeline: Pipeline, client_of: MakeClient, options: dict[str, Any], headers: dict[str, str]
):
    response = await client_of(pipeline, **options).get("/v1/models", headers={**BROWSER, **headers})
    assert response.status_code == 200
