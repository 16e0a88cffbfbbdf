"""A server with the page and a scripted model, for browsers in tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from edgewise.web import page_routes
from tests.support.gateway_parts import serving_app

USAGE = {
    "prompt_tokens": 1250,
    "completion_tokens": 312,
    "total_tokens": 1562,
    "prompt_tokens_details": {"cached_tokens": 1024},
}

ANSWER = """Here is a **plan** with `code` and a [link](https://example.com/x).

## Steps
1. First
   - nested

```python
def double(n: int) -> int:
    return 2 * n  # twice
```

| model | tok/s |
|---|---:|
| one | 42 |
"""


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@dataclass
class Say:
    """One answer: pieces of text, or whole deltas, or whole events; `pause_s` after each. `hold`: never ends by itself."""

    pieces: Sequence[str | dict[str, Any]] = ()
    pause_s: float = 0.0
    hold: bool = False
    cut: bool = False  # the connection ends without an end mark
    finish: str = "stop"


@dataclass
class Refuse:
    """An answer that is an HTTP error."""

    status: int
    message: str = "No."
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Site:
    """`answers` are given in turn, the last one for ever. `asked`: the bodies of requests. `key`: asked for, if there is one."""

    answers: list[Say | Refuse] = field(default_factory=lambda: [Say(["Hello ", "there."])])
    key: str | None = None
    models: list[dict[str, Any]] = field(
        default_factory=lambda: [{"id": "qwen3-4b", "object": "model", "max_model_len": 32768}]
    )
    search: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    num_left: int = 0  # clients that left before an answer's end
    url: str = ""

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                *page_routes(lambda request: "A server.\n", search=self.search),
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/web/chat/completions", self._chat, methods=["POST"]),
            ]
        )

    def _refused(self, request: Request) -> Response | None:
        if self.key is None or request.headers.get("authorization") == f"Bearer {self.key}":
            return None
        return _error(Refuse(401, "Missing or wrong API key", "invalid_api_key"))

    async def _models(self, request: Request) -> Response:
        return self._refused(request) or JSONResponse({"object": "list", "data": self.models})

    async def _chat(self, request: Request) -> Response:
        if (refused := self._refused(request)) is not None:
            return refused
        self.asked.append(await request.json())
        self.paths.append(request.url.path)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Refuse):
            return _error(answer)
        model = self.asked[-1]["model"]
        return StreamingResponse(self._stream(answer, model), media_type="text/event-stream")

    async def _stream(self, answer: Say, model: str) -> AsyncIterator[bytes]:
        try:
            for piece in answer.pieces:
                yield _event(piece, model)
                await asyncio.sleep(answer.pause_s)
            if answer.hold:
                await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.num_left += 1
            raise
        if answer.cut:
            return
        yield _event({"choices": [{"index": 0, "delta": {}, "finish_reason": answer.finish}]}, model)
        yield _event({"choices": [], "usage": USAGE}, model)
        yield b"data: [DONE]\n\n"


def _event(piece: str | dict[str, Any], model: str) -> bytes:
    if isinstance(piece, str):
        piece = {"content": piece}
    if "choices" not in piece:
        piece = {"choices": [{"index": 0, "delta": piece, "finish_reason": None}]}
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model, **piece}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def research(**event: Any) -> dict[str, Any]:
    """An event of the web search loop."""
    return {"choices": [], "edgewise": event}


def _error(refusal: Refuse) -> Response:
    error = {"message": refusal.message, "type": "invalid_request_error", "param": None, "code": refusal.code}
    return JSONResponse({"error": error}, refusal.status, refusal.headers)


@contextlib.contextmanager
def running(site: Site) -> Iterator[Site]:
    with serving_app(site.app()) as url:
        site.url = url
        yield site
