"""The page and its search in the two servers that have them: who gets what at `/`, keys, prefixes."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from edgewise.gateway.keys import StaticKeys
from edgewise.web import SearchSettings, web_routes
from tests.server.conftest import running
from tests.support.gateway_parts import gateway, serving_app, upstream
from tests.support.pipelines import make_pipeline
from tests.support.scripted_upstream import chat_server, scripted
from tests.web.search.stands import Searxng, hit

pytestmark = pytest.mark.http

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
ASK = {"messages": [{"role": "user", "content": "news?"}], "stream": True, "max_tokens": 8}


@contextlib.contextmanager
def served(**options: Any) -> Iterator[str]:
    pipeline = make_pipeline({"assistant\n": "Hello.<|im_end|>"}, max_model_len=8192, num_blocks=2048)
    with running(pipeline, **options) as url:
        yield url
    pipeline.close()


@contextlib.contextmanager
def of_gateway(**options: Any) -> Iterator[str]:
    search = SearchSettings(options.pop("search_url", None))
    keys = options.pop("api_keys", ())
    more = {"keys": StaticKeys(keys)} if keys else {}
    page = options.pop("page", True)
    with scripted(chat_server("m", "Hello.")) as behind:
        routes = web_routes(lambda request: "A gateway.\n", search, page=page)
        with gateway(upstream(behind.url), routes=routes, **more, **options) as url:
            yield url


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
