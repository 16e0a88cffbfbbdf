"""The page and its search in the two servers that have them: who gets what at `/`, keys, prefixes."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from tests.support.gateway_parts import serving_app
from tests.web.mounts import of_gateway, served
from tests.web.search.stands import Searxng, hit

pytestmark = pytest.mark.http

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
ASK = {"messages": [{"role": "user", "content": "news?"}], "stream": True, "max_tokens": 8}


SERVERS = pytest.mark.parametrize("server", [served, of_gateway], ids=["serve", "gateway"])


@SERVERS
def test_browsers_get_the_page_and_programs_a_line(server: Any):
    with server() as url:
        html = httpx.get(url, headers=BROWSER)
        assert html.headers["content-type"].startswith("text/html") and "default-src 'none'" in str(
            html.headers
        )
        assert 'name="edgewise-search" content="off"' in html.text
        line = httpx.get(url)
        assert line.headers["content-type"].startswith("text/plain") and "<" not in line.text
        assert httpx.get(f"{url}/page/app.js").headers["content-type"].startswith("text/javascript")
        assert httpx.get(f"{url}/page/../pyproject.toml").status_code == 404


@SERVERS
def test_without_the_page(server: Any):
    with server(page=False) as url:
        assert httpx.get(url, headers=BROWSER).headers["content-type"].startswith("text/plain")
        assert httpx.get(f"{url}/page/app.js").status_code == 404


@SERVERS
def test_the_page_needs_no_key_and_the_search_does(server: Any):
    with (
        serving_app(Searxng({"*": [hit(1)]}).app()) as searxng,
        server(api_keys=("sk-1",), search_url=searxng) as url,
    ):
        assert 'content="on"' in httpx.get(url, headers=BROWSER).text
        assert httpx.get(f"{url}/page/style.css").status_code == 200
        refused = httpx.post(f"{url}/v1/web/chat/completions", json=ASK)
        assert refused.status_code == 401
        allowed = httpx.post(
            f"{url}/v1/web/chat/completions",
            json=ASK,
            headers={"authorization": "Bearer sk-1"},
            timeout=30,
        )
        assert allowed.status_code == 200, allowed.text
        lines = [line[6:] for line in allowed.text.splitlines() if line.startswith("data: ")]
        assert lines[-1] == "[DONE]" and "error" not in json.loads(lines[-2]), lines


@SERVERS
def test_there_is_no_search_where_none_is_set(server: Any):
    with server() as url:
        answer = httpx.post(f"{url}/v1/web/chat/completions", json=ASK)
    assert answer.status_code == 404 and "--search-url" in answer.json()["error"]["message"]


@SERVERS
def test_below_a_prefix(server: Any):
    with (
        serving_app(Searxng({"*": [hit(1)]}).app()) as searxng,
        server(root_path="/llm", search_url=searxng) as url,
    ):
        for prefix in ("", "/llm"):
            assert httpx.get(f"{url}{prefix}/", headers=BROWSER).status_code == 200
            answer = httpx.post(f"{url}{prefix}/v1/web/chat/completions", json=ASK, timeout=30)
            assert answer.status_code == 200 and "[DONE]" in answer.text


def test_a_search_engine_that_is_down_is_told():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with serving_app(Searxng({}).app()), served(search_url=nobody) as url:
            answer = httpx.post(f"{url}/v1/web/chat/completions", json=ASK, timeout=30)
    assert answer.status_code == 200
