"""An imitation of TensorRT Edge-LLM 0.11's server: its HTTP rules, each a switch of `Rules`, on a real port of loopback.

with EdgeLlmServer(Rules()) as server:
    httpx.get(server.url + "/v1/models")
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support import edge_llm_messages as messages_api
from tests.support.edge_llm_answers import Answered, chat_stream, chat_whole, make_answer
from tests.support.edge_llm_model import Script, by_rule, render, tokens_of
from tests.support.edge_llm_rules import CHAT_FIELDS, RefusedError, Rules, check_chat, invalid, media_urls

Handler = Callable[[Request], Awaitable[Response]]


class EdgeLlmServer:
    """A server of one model. What may be changed while it runs: `rules`, `script`, `busy` (refuses as a full queue does),
    `fail_after` (an error event after so many tokens of a stream).

    `requests` are the bodies as they came, per path; `prompts` what was rendered; `fetched` media addresses it would have asked.
    `token_s` and `prefill_s` are seconds per token. `cancelled` counts answers whose client left.
    """

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        script: Script = by_rule,
        model: str = "Qwen3.6-35B-A3B-NVFP4",
        api_key: str | None = None,
        window: int = 8192,
        max_input: int = 4096,
        max_queued: int = 16,
        token_s: float = 0.0,
        prefill_s: float = 0.0,
        keep_alive_s: float = 0.05,
    ) -> None:
        self.rules = rules or Rules()
        self.script = script
        self.model = model
        self.api_key = api_key
        self.window, self.max_input, self.max_queued = window, max_input, max_queued
        self.token_s, self.prefill_s, self.keep_alive_s = token_s, prefill_s, keep_alive_s
        self.busy = False
        self.fail_after: int | None = None
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.prompts: list[str] = []
        self.fetched: list[str] = []
        self.cancelled = 0
        self.num_generated = 0
        self._kept: list[list[str]] = []
        self._in_flight = 0
        self._slot = asyncio.Lock()
        self._app = self._make_app()
        self._server = uvicorn.Server(
            uvicorn.Config(self._app, host="127.0.0.1", port=0, log_level="error", lifespan="off")
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    # -- running

    def __enter__(self) -> EdgeLlmServer:
        self._thread.start()
        end_s = time.monotonic() + 10
        while not self._server.started and time.monotonic() < end_s:
            time.sleep(0.005)
        assert self._server.started
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(10)

    @property
    def url(self) -> str:
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    # -- routes

    def _make_app(self) -> Starlette:
        routes = [
            Route("/health", self._health),
            Route("/health/ready", self._ready),
            Route("/openapi.json", self._openapi),
            Route("/v1/models", self._guarded(self._models)),
            Route("/v1/voices", self._guarded(self._voices)),
            Route("/v1/chat/completions", self._guarded(self._chat), methods=["POST"]),
        ]
        if not self.rules.no_messages:
            routes += [
                Route("/v1/messages", self._guarded(self._messages), methods=["POST"]),
                Route("/v1/messages/count_tokens", self._guarded(self._count), methods=["POST"]),
            ]
        return Starlette(routes=routes)

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                self._check_key(request)
                return await handler(request)
            except RefusedError as error:
                return self._refusal(request.url.path, error)

        return guarded

    def _check_key(self, request: Request) -> None:
        if self.api_key is None or self.rules.open_door:
            return
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = bearer or request.headers.get("x-api-key", "")
        if not hmac.compare_digest(given, self.api_key):
            raise RefusedError(401, "authentication_error", "Wrong API key.")

    def _refusal(self, path: str, error: RefusedError) -> Response:
        status = error.status
        if self.rules.input_errors_are_500 and status == 400:
            status = 500
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        if path.startswith("/v1/messages"):
            status = 529 if status == 429 else status
            return JSONResponse(messages_api.error_object(status, error.message, self.rules), status, headers)
        if status == 429 and self.rules.retry_after_on_429:
            headers["Retry-After"] = "1"
        return JSONResponse(self.error_object(status, error), status, headers)

    def error_object(self, status: int, error: RefusedError) -> dict[str, Any]:
        if self.rules.string_errors:
            return {"error": error.message}
        return {
            "error": {
                "message": error.message,
                "type": error.kind,
                "param": error.param,
                "code": error.code or status,
            }
        }

    async def _health(self, request: Request) -> Response:
        capabilities = {
            "chat": True,
            "transcription": False,
            "speech": False,
            "input_modalities": ["text"],
            "output_modalities": ["text"],
            "max_model_len": self.window,
            "max_input_len": self.max_input,
            "max_batch_size": 1,
            "max_num_seqs": 1,
            "kv_cache_dtype": "fp8",
            "speculative_decoding": False,
            "speculative_method": None,
            "context_reuse": not self.rules.no_prefix_cache,
        }
        counts = {"active_requests": int(self._slot.locked()), "queued_requests": max(0, self._in_flight - 1)}
        return JSONResponse(
            {"status": "healthy", "model": self.model, **counts, "capabilities": capabilities}
        )

    async def _ready(self, request: Request) -> Response:
        return JSONResponse({"status": "ready", "active_requests": self._in_flight, "queued_requests": 0})

    async def _openapi(self, request: Request) -> Response:
        closed = self.rules.unknown_fields_refused
        chat: dict[str, Any] = {
            "type": "object",
            "properties": {name: {} for name in sorted(CHAT_FIELDS)},
            "required": ["messages"],
            **({"additionalProperties": False} if closed else {}),
        }
        messages = {"type": "object", "additionalProperties": True, "title": "Body"}
        return JSONResponse(
            {
                "openapi": "3.1.0",
                "info": {"title": "TensorRT Edge-LLM", "version": "0.11.0"},
                "paths": {
                    "/v1/models": {"get": {}},
                    "/v1/chat/completions": _operation(
                        {"$ref": "#/components/schemas/ChatCompletionRequest"}
                    ),
                    "/v1/messages": _operation(messages),
                    "/v1/messages/count_tokens": _operation(messages),
                },
                "components": {"schemas": {"ChatCompletionRequest": chat}},
            }
        )

    async def _models(self, request: Request) -> Response:
        card = {
            "id": self.model,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "tensorrt-edgellm",
            "max_model_len": self.window,
        }
        return JSONResponse({"object": "list", "data": [card]})

    async def _voices(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": []})

    # -- generating

    async def _body(self, request: Request) -> dict[str, Any]:
        try:
            body = json.loads(await request.body())
        except ValueError:
            raise invalid("The body is not valid JSON.") from None
        if not isinstance(body, dict):
            raise invalid("Input should be an object")
        self.requests.append((request.url.path, body))
        return body

    async def _chat(self, request: Request) -> Response:
        body = await self._body(request)
        check_chat(body, self.rules, self.model)
        answered = await self._admit(body)
        if body.get("stream"):
            return self._stream(chat_stream(answered, body, self), answered)
        try:
            await self._generate(answered)
            return JSONResponse(chat_whole(answered, self.rules))
        finally:
            self._release()

    async def _messages(self, request: Request) -> Response:
        given = await self._body(request)
        body = messages_api.as_chat(given, self.rules)
        check_chat(body, self.rules.with_(unknown_fields_refused=False), self.model)
        answered = await self._admit(body)
        if given.get("stream"):
            return self._stream(messages_api.stream(answered, self), answered)
        try:
            await self._generate(answered)
            return JSONResponse(messages_api.whole(answered))
        finally:
            self._release()

    async def _count(self, request: Request) -> Response:
        given = await self._body(request)
        body = messages_api.as_chat({"max_tokens": 1, **given}, self.rules)
        check_chat(body, self.rules.with_(unknown_fields_refused=False), self.model)
        if self.rules.count_tokens_refuses_media and media_urls(body["messages"]):
            raise RefusedError(400, "unsupported_feature", "Counting media is not supported.")
        num_tokens = len(tokens_of(render(body, self.rules)))
        if self.rules.count_tokens_takes_slot:
            async with self._slot:
                pass
        return JSONResponse({"input_tokens": num_tokens + (5 if self.rules.count_tokens_differs else 0)})

    async def _admit(self, body: dict[str, Any]) -> Answered:
        """A place in the queue, then the slot; what the request asks is known then. Raises RefusedError 429."""
        if self.busy or self._in_flight > self.max_queued:
            raise RefusedError(429, "server_overloaded", "The request queue is full.")
        self._in_flight += 1
        try:
            await self._slot.acquire()
        except BaseException:
            self._in_flight -= 1
            raise
        try:
            self.fetched += [url for url in media_urls(body["messages"]) if url.startswith("http")]
            prompt = render(body, self.rules)
            self.prompts.append(prompt)
            return make_answer(body, prompt, self)
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        self._slot.release()
        self._in_flight -= 1

    def remember(self, tokens: list[str]) -> int:
        """How much of a prompt was computed before; it is kept from now on."""
        if self.rules.no_prefix_cache:
            return 0
        cached = max((_common(tokens, kept) for kept in self._kept), default=0)
        self._kept.append(tokens)
        return min(cached, len(tokens) - 1)

    async def _generate(self, answered: Answered) -> None:
        await asyncio.sleep(self.prefill_s * answered.num_computed)
        await asyncio.sleep(self.token_s * answered.num_tokens)
        self.num_generated += answered.num_tokens

    def _stream(self, pieces: AsyncIterator[bytes], answered: Answered) -> Response:
        async def guarded() -> AsyncIterator[bytes]:
            done = False
            try:
                async for piece in self._alive(pieces):
                    yield piece
                done = True
            finally:
                if done or not self.rules.never_cancels:
                    self.cancelled += not done
                    self._release()
                else:
                    self._go_on(answered)

        return StreamingResponse(guarded(), media_type="text/event-stream")

    def _go_on(self, answered: Answered) -> None:
        """Generate for nobody; the slot stays taken as long as the whole answer takes."""
        self.num_generated += answered.num_tokens
        loop = asyncio.get_running_loop()
        loop.call_later(self.token_s * answered.num_tokens, self._release)

    async def _alive(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The pieces, with signs of life while the first is waited for."""
        waiting = asyncio.ensure_future(anext(pieces))
        try:
            while not self.rules.silent_prefill:
                done, _ = await asyncio.wait({waiting}, timeout=self.keep_alive_s)
                if done:
                    break
                yield b": ping\n\n"
            with contextlib.suppress(StopAsyncIteration):
                yield await waiting
                async for piece in pieces:
                    yield piece
        finally:
            waiting.cancel()


def _common(tokens: list[str], kept: list[str]) -> int:
    same = 0
    for one, other in zip(tokens, kept, strict=False):
        if one != other:
            break
        same += 1
    return same


def _operation(schema: dict[str, Any]) -> dict[str, Any]:
    return {"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}}
