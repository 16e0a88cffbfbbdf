"""Stand-ins of the research's surroundings: a SearXNG, sites of the web behind a resolver, a model that does as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from edgewise.web.search import SearchSettings, search_routes
from edgewise.web.search.fetching import Fetcher
from edgewise.web.search.limits import Limits
from tests.support.gateway_parts import serving_app

PUBLIC = "93.184.215.14"


@dataclass
class Searxng:
    """`answers`: by query, what it finds; "*" for all others. `asked`: the parameters of each search."""

    answers: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    asked: list[dict[str, str]] = field(default_factory=list)

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/search", self._search)])

    async def _search(self, request: Request) -> Response:
        self.asked.append(dict(request.query_params))
        found = self.answers.get(request.query_params["q"], self.answers.get("*", []))
        if isinstance(found, str):
            return Response(found, media_type="text/html")
        body = found if isinstance(found, dict) else {"results": found, "unresponsive_engines": []}
        return JSONResponse(body, self.status)


def hit(number: int, **more: str) -> dict[str, str]:
    return {
        "title": f"Title {number}",
        "url": f"https://site{number}.example/page",
        "content": f"Extract {number}",
        **more,
    }


def call(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "function": {"name": name, "arguments": json.dumps(arguments)}}


@dataclass
class Turn:
    """What the model does in one round."""

    text: str = ""
    calls: Sequence[dict[str, Any]] = ()
    thoughts: str = ""
    status: int = 200
    cut: bool = False
    pause_s: float = 0.0  # before it says anything


Turns = Callable[[dict[str, Any]], Turn] | list[Turn]


@dataclass
class Model:
    """Chat completions. `turns` in order, the last one for ever; or a function of the request."""

    turns: Turns
    asked: list[dict[str, Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    num_cancelled: int = 0

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        self.raw.append(await request.body())
        self.keys.append(request.headers.get("authorization"))
        if callable(self.turns):
            turn = self.turns(body)
        else:
            turn = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        try:
            await asyncio.sleep(turn.pause_s)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        if turn.status != 200:
            error = {"message": "No.", "type": "invalid_request_error", "code": "x", "param": None}
            return JSONResponse({"error": error}, turn.status, {"retry-after": "7"})
        return StreamingResponse(self._stream(turn), media_type="text/event-stream")

    async def _stream(self, turn: Turn) -> AsyncIterator[bytes]:
        if turn.thoughts:
            yield _chunk({"reasoning": turn.thoughts})
        for word in turn.text.split(" ") if turn.text else ():
            yield _chunk({"content": word + " "})
        for index, one in enumerate(turn.calls):
            arguments = one["function"]["arguments"]
            head = {
                "index": index,
                "id": one["id"],
                "function": {"name": one["function"]["name"], "arguments": ""},
            }
            yield _chunk({"tool_calls": [head]})
            steps = (0, 5, *range(1000, len(arguments), 1000), len(arguments))
            for piece in (arguments[a:b] for a, b in pairwise(steps)):
                yield _chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        if turn.cut:
            yield b'data: {"error": {"message": "It broke.", "type": "server_error"}}\n\n'
            return
        yield _chunk({}, "tool_calls" if turn.calls else "stop")
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        yield _event({"choices": [], "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 4}}})
        yield b"data: [DONE]\n\n"


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _event(body: dict[str, Any]) -> bytes:
    whole = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", **body}
    return f"data: {json.dumps(whole)}\n\n".encode()


Handler = Callable[[httpx.Request], httpx.Response]


def web(sites: dict[str, Handler], addresses: dict[str, list[str]] | None = None, **limits: Any) -> Fetcher:
    """A fetcher whose web is `sites`, by host. Hosts not in `addresses` have a public one."""

    async def resolve(host: str) -> list[str]:
        if host not in sites:
            raise OSError("no such host")
        return (addresses or {}).get(host, [PUBLIC])

    async def handle(request: httpx.Request) -> httpx.Response:
        assert request.extensions["sni_hostname"] == request.headers["host"]
        return sites[request.headers["host"]](request)

    return Fetcher(Limits(**limits), resolve, httpx.MockTransport(handle))


def page(html: str, **headers: str) -> Handler:
    whole = {"content-type": "text/html", **headers}
    return lambda request: httpx.Response(200, headers=whole, stream=httpx.ByteStream(html.encode()))


@contextlib.contextmanager
def searching(
    model: Model, searxng: Searxng, *, fetcher: Fetcher | None = None, **settings: Any
) -> Iterator[str]:
    """A server with the search; its address."""
    with serving_app(searxng.app()) as search_url:
        options = SearchSettings(search_url, fetcher=fetcher or web({}), **settings)
        routes = [Route("/v1/chat/completions", model.chat, methods=["POST"]), *search_routes(options)]
        with serving_app(Starlette(routes=routes)) as url:
            yield url


def ask(url: str, text: str = "What is new?", **body: Any) -> httpx.Response:
    whole = {"model": "m", "messages": [{"role": "user", "content": text}], **body}
    return httpx.post(
        f"{url}/v1/web/chat/completions", json=whole, headers={"authorization": "Bearer k"}, timeout=20
    )


def events(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]
