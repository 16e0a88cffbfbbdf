"""`POST /v1/web/chat/completions`: a chat completion that may search the web first, streamed or whole. The model is asked through the application's
own front door, so that keys, limits and counters hold; who it is, is the application's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Scope

from edgewise.core.errors import EdgewiseError, InvalidRequestError
from edgewise.protocols import sse
from edgewise.protocols.errors import encode_error
from edgewise.serving import in_process
from edgewise.serving.bodies import decode_json, read_body
from edgewise.serving.errors import ClientGoneError, HttpError, JsonResponse, error_response
from edgewise.web.search.fetching import Fetcher
from edgewise.web.search.limits import Limits
from edgewise.web.search.loop import Loop, ModelError
from edgewise.web.search.sources import Sources, host_of
from edgewise.web.search.tools import Research

logger = logging.getLogger("edgewise.web")

T = TypeVar("T")

PATH = "/v1/web/chat/completions"
_CHAT = "/v1/chat/completions"
_ADDRESS = re.compile(r"(?:https?://|www\.)[^\s<>\"')\]]+")


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """`url`: of a SearXNG whose JSON is switched on; None: there is no web search here."""

    url: str | None
    limits: Limits = field(default_factory=Limits)
    fetcher: Fetcher | None = None
    max_body_bytes: int = 4 << 20
    keep_alive_s: float = 10.0


def search_routes(settings: SearchSettings) -> list[BaseRoute]:
    async def answer(request: Request) -> Response:
        try:
            return await _answer(request, settings)
        except Exception as error:
            return error_response(error, request.scope)

    return [Route(PATH, answer, methods=["POST"])]


async def _answer(request: Request, settings: SearchSettings) -> Response:
    if settings.url is None:
        raise HttpError(
            404, "This server has no web search: it was started without --search-url.", code="not_found"
        )
    raw = await read_body(request, max_bytes=settings.max_body_bytes, timeout_s=60.0)
    body = _checked(decode_json(raw))
    answering = Answering(request.scope["app"], request.scope, settings, body)
    if body.get("stream"):
        await _while_client_stays(request, answering.begin(settings.keep_alive_s))
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        return StreamingResponse(answering.stream(), media_type=sse.CONTENT_TYPE, headers=headers)
    return JsonResponse(await _while_client_stays(request, answering.whole()))


async def _while_client_stays(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Raises ClientGoneError where the client leaves first; the work is cancelled then."""
    doing, gone = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((doing, gone), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ClientGoneError("the client left before its answer")
        return doing.result()
    finally:
        gone.cancel()
        doing.cancel()
        await asyncio.gather(doing, gone, return_exceptions=True)


def _checked(body: Any) -> dict[str, Any]:
    """Raises InvalidRequestError. All but what the loop itself needs is left to the chat completion."""
    if not isinstance(body, dict):
        raise InvalidRequestError("The request's body must be a JSON object.")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequestError("messages must be a list of at least one message.", param="messages")
    if body.get("tools"):
        raise InvalidRequestError("A web search brings its own tools; ask without any.", param="tools")
    if body.get("n") not in (None, 1):
        raise InvalidRequestError("A web search gives one answer.", param="n")
    return body


class _InProcessModel:
    """The application's own chat completions, for whoever sent the request."""

    def __init__(self, app: ASGIApp, scope: Scope) -> None:
        self._app = app
        self._scope = scope

    async def chunks(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        reply = await in_process.post(self._app, self._scope, _CHAT, body)
        try:
            if reply.status != 200:
                answer = await reply.read()
                pause = reply.headers.get("retry-after")
                raise ModelError(f"the model's server answered {reply.status}", reply.status, answer, pause)
            parser = sse.SseParser()
            async for piece in reply.chunks():
                for event in parser.feed(piece):
                    if event.data != b"[DONE]":
                        yield self._chunk(event.data)
        finally:
            await reply.aclose()

    def _chunk(self, data: bytes) -> dict[str, Any]:
        chunk: dict[str, Any] = orjson.loads(data)
        if "error" in chunk:
            raise ModelError("the model's answer broke off", 502, data)
        return chunk


class Answering:
    """One answer. A task makes its events; whoever reads them may leave, and then it stops."""

    def __init__(self, app: ASGIApp, scope: Scope, settings: SearchSettings, body: dict[str, Any]) -> None:
        self._settings = settings
        self._body = body
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()  # rounds are bounded, so this is
        self._error: Exception | None = None
        self._model = _InProcessModel(app, scope)
        self._sources = Sources()
        self._sources.hosts.update(_named_hosts(body["messages"]))
        self._reading: asyncio.Future[dict[str, Any] | None] | None = None
        self._loop: Loop | None = None
        self._task: asyncio.Task[None] | None = None

    async def begin(self, patience_s: float | None = None) -> None:
        """Until the first event is there, or it takes too long to keep a client without a sign of life. Raises what went wrong before:
        the client then gets it as an HTTP error.
        """
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._reading = asyncio.ensure_future(self._events.get())
        try:
            await asyncio.wait((self._reading,), timeout=patience_s)
        except asyncio.CancelledError:
            await self._stop()
            raise
        if self._reading.done() and self._reading.result() is None and self._error is not None:
            raise _told(self._error)

    async def _next(self) -> dict[str, Any] | None:
        """The next event, once `_reading` has it."""
        assert self._reading is not None
        event = await self._reading
        if event is not None:
            self._reading = asyncio.ensure_future(self._events.get())
        return event

    async def _run(self) -> None:
        try:
            async with httpx.AsyncClient(trust_env=False) as client:
                await self._research(client)
        except EdgewiseError as error:
            self._error = error
        except Exception as error:
            logger.error("a web search failed: %s", error, exc_info=error)
            self._error = error
        self._events.put_nowait(None)

    async def _research(self, client: httpx.AsyncClient) -> None:
        settings, limits = self._settings, self._settings.limits
        fetcher = settings.fetcher or Fetcher(limits)
        research = Research(limits, settings.url or "", client, fetcher, self._tell, self._sources)
        self._loop = loop = Loop(self._model, research, limits)
        async for chunk in loop.run(self._body):
            self._events.put_nowait(chunk)
        if not loop.text.strip():
            listed = self._sources.listed(10)
            found = f"These sources were found:\n{listed}" if listed else "Nothing was found."
            self._tell({"type": "note", "text": f"No answer was written. {found}"})
        if len(self._sources):
            self._tell(self._sources.event(loop.text))
        ending = {"index": 0, "delta": {}, "finish_reason": loop.finish}
        self._events.put_nowait(self._chunk(choices=[ending]))
        self._events.put_nowait(self._chunk(usage=loop.usage))

    def _tell(self, event: dict[str, Any]) -> None:
        """Something for the page."""
        self._events.put_nowait(self._chunk(edgewise=event))

    def _chunk(self, **more: Any) -> dict[str, Any]:
        last = self._loop.last if self._loop else {}
        return {"object": "chat.completion.chunk", **last, "choices": [], **more}

    async def stream(self) -> AsyncIterator[bytes]:
        assert self._reading is not None
        try:
            while True:
                while not (await asyncio.wait((self._reading,), timeout=self._settings.keep_alive_s))[0]:
                    yield sse.comment("the web is being searched")
                if (event := await self._next()) is None:
                    break
                yield sse.data(event)
            if self._error is not None:
                yield sse.data(_error_object(self._error))
            yield sse.DONE
        finally:
            await self._stop()

    async def whole(self) -> dict[str, Any]:
        """All of it as one chat completion; the events of the research beside it."""
        text, reasoning, research = "", "", []
        try:
            await self.begin()
            while (event := await self._next()) is not None:
                for choice in event.get("choices") or ():
                    text += choice["delta"].get("content") or ""
                    reasoning += (
                        choice["delta"].get("reasoning") or choice["delta"].get("reasoning_content") or ""
                    )
                if "edgewise" in event:
                    research.append(event["edgewise"])
        finally:
            await self._stop()
        if self._error is not None:
            raise _told(self._error)
        assert self._loop is not None
        message = {"role": "assistant", "content": text, **({"reasoning": reasoning} if reasoning else {})}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._loop.finish}
        shape = {"object": "chat.completion", "choices": [choice], "usage": self._loop.usage}
        return {**self._loop.last, **shape, "edgewise": research}

    async def _stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._task


def _told(error: Exception) -> Exception:
    """An error as it is raised before anything was sent."""
    return _refused(error) if isinstance(error, ModelError) else error


def _refused(error: ModelError) -> HttpError:
    """The model server's own refusal, as it came."""
    try:
        told = json.loads(error.body)["error"]
        message, kind, code = str(told["message"]), str(told.get("type")), told.get("code")
    except (ValueError, KeyError, TypeError, AttributeError):
        message, kind, code = error.message, "server_error", None
    headers = {"Retry-After": error.retry_after} if error.retry_after else {}
    return HttpError(error.status, message, kind=kind, code=code, headers=headers)


def _error_object(error: Exception) -> dict[str, Any]:
    if isinstance(error, ModelError):
        with contextlib.suppress(ValueError):
            told = json.loads(error.body)
            if isinstance(told, dict) and "error" in told:
                return told
    return encode_error(error)


def _named_hosts(messages: list[Any]) -> set[str]:
    """Of addresses that the person wrote. Without its scheme one is known by its `www.`."""
    found = [address for text in _written(messages) for address in _ADDRESS.findall(text)]
    return {host_of(one if "://" in one else f"https://{one}") for one in found} - {""}


def _written(messages: list[Any]) -> Iterator[str]:
    """The texts of the person's messages."""
    for one in messages:
        if isinstance(one, dict) and one.get("role") == "user":
            parts = one["content"] if isinstance(one.get("content"), list) else [{"text": one.get("content")}]
            yield from (str(part.get("text") or "") for part in parts if isinstance(part, dict))
