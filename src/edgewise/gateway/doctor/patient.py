"""The server under examination: requests to it, and answers as the probes look at them."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx

from edgewise.gateway.profile import Api
from edgewise.protocols.sse import SseParser

MAX_TOKENS = 16  # of an answer, unless a probe needs more
SILENCE_S = (
    15.0  # a stream should not be silent for longer: coding tools and proxies give up after a minute or less
)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer in one piece. `body` is {} where it is no JSON object."""

    status: int
    body: dict[str, Any]

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def message(self) -> dict[str, Any]:
        """The first choice's message."""
        choices = self.body.get("choices") or [{}]
        return choices[0].get("message") or {}

    @property
    def text(self) -> str:
        return self.message.get("content") or ""

    @property
    def calls(self) -> list[dict[str, Any]]:
        return self.message.get("tool_calls") or []

    @property
    def reasoning(self) -> str:
        return self.message.get("reasoning_content") or self.message.get("reasoning") or ""

    @property
    def prompt_tokens(self) -> int | None:
        return (self.body.get("usage") or {}).get("prompt_tokens")

    @property
    def cached_tokens(self) -> int | None:
        return ((self.body.get("usage") or {}).get("prompt_tokens_details") or {}).get("cached_tokens")

    @property
    def error(self) -> str:
        """What an error says; "" where there is no error object with a message."""
        error = self.body.get("error")
        message = error.get("message") if isinstance(error, dict) else None
        return message if isinstance(message, str) else ""


@dataclass(slots=True)
class Streamed:
    """A streamed answer: its events, their JSON, and whether the end mark came."""

    status: int
    events: list[dict[str, Any]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    done: bool = False
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 200


class Arrival(NamedTuple):
    """A piece of a stream, and when it came by `time.monotonic`."""

    at_s: float
    piece: bytes


class Patient:
    """Use as an async context manager. `num_requests` counts what it was asked."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None,
        model: str,
        window: int | None,
        timeout_s: float,
        silence_s: float = SILENCE_S,
    ) -> None:
        headers = {"authorization": f"Bearer {key}", "x-api-key": key} if key else {}
        self.key = key
        self.model = model
        self.window = window
        self.silence_s = silence_s
        self.num_requests = 0
        self._client = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def chat(self, content: str | list[dict[str, Any]], **fields: Any) -> Answer:
        """A chat of one user message, or of the messages given."""
        return await self.post(Api.CHAT.value, self.chat_body(content, **fields))

    def chat_body(self, content: str | list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": content}] if isinstance(content, str) else content
        body = {"model": self.model, "messages": messages, "max_tokens": MAX_TOKENS, "temperature": 0}
        return {**body, **fields}

    async def post(
        self, path: str, body: dict[str, Any] | bytes, headers: dict[str, str] | None = None
    ) -> Answer:
        self.num_requests += 1
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = await self._client.post(
            path, content=content, headers={"content-type": "application/json", **(headers or {})}
        )
        try:
            value = reply.json()
        except ValueError:
            value = None
        return Answer(reply.status_code, value if isinstance(value, dict) else {})

    async def stream(self, path: str, body: dict[str, Any], *, stop_after: int | None = None) -> Streamed:
        """A streamed answer, cut off after so many events."""
        self.num_requests += 1
        parser = SseParser()
        async with self._client.stream("POST", path, json={**body, "stream": True}) as reply:
            streamed = Streamed(reply.status_code)
            if not streamed.ok:
                streamed.error = (await reply.aread()).decode(errors="replace")
                return streamed
            async for piece in reply.aiter_bytes():
                for event in parser.feed(piece):
                    _take(streamed, event.name, event.data)
                if stop_after is not None and len(streamed.events) >= stop_after:
                    return streamed
        return streamed

    async def get(self, path: str) -> httpx.Response:
        return await self._client.get(path)

    async def arrivals(
        self, body: dict[str, Any], *, until: Callable[[bytes], bool]
    ) -> AsyncIterator[Arrival]:
        """The pieces of a streamed chat with their times, the request's own first; the connection is closed after the one `until` is true of."""
        self.num_requests += 1
        yield Arrival(time.monotonic(), b"")
        async with self._client.stream("POST", Api.CHAT.value, json={**body, "stream": True}) as reply:
            if reply.status_code != 200:
                return
            async for piece in reply.aiter_bytes():
                yield Arrival(time.monotonic(), piece)
                if until(piece):
                    return

    async def seconds_of(self, content: str) -> tuple[float, Answer]:
        began = time.monotonic()
        answer = await self.chat(content, max_tokens=1)
        return time.monotonic() - began, answer


def _take(streamed: Streamed, name: str, data: bytes) -> None:
    if data.strip() == b"[DONE]":
        streamed.done = True
        return
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if isinstance(value, dict):
        streamed.events.append(value)
        streamed.names.append(name)
