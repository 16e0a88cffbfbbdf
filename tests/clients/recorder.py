"""An ASGI middleware that keeps every request and every response, with times."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass
class Exchange:
    """One request and what was answered. Times are of time.monotonic; 0 where it did not come to it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""
    status: int = 0
    answer: bytes = b""
    began_s: float = 0.0
    first_byte_s: float = 0.0
    ended_s: float = 0.0
    whole: bool = False  # the last byte was sent and nobody had left

    @property
    def request(self) -> dict[str, Any]:
        """The body as JSON; empty where there is none."""
        value = json.loads(self.body) if self.body else {}
        assert isinstance(value, dict)
        return value

    @property
    def events(self) -> list[dict[str, Any]]:
        """The JSON of every event of a streamed answer."""
        lines = self.answer.decode().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    @property
    def generates(self) -> bool:
        return self.method == "POST" and not self.path.endswith("/count_tokens")

    def __str__(self) -> str:
        return f"{self.method} {self.path} ({len(self.body):,} bytes) -> {self.status} {self.answer[:300]!r}"


@dataclass
class Recorder:
    """Wraps an application; `exchanges` in the order the requests came."""

    app: ASGIApp
    exchanges: list[Exchange] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        exchange = Exchange(scope["method"], scope["path"], headers, began_s=time.monotonic())
        self.exchanges.append(exchange)

        async def receive_and_keep() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                exchange.body += message.get("body", b"")
            return message

        async def keep_and_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
            elif message["type"] == "http.response.body" and message.get("body"):
                exchange.first_byte_s = exchange.first_byte_s or time.monotonic()
                exchange.answer += message["body"]
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                exchange.whole = True

        try:
            await self.app(scope, receive_and_keep, keep_and_send)
        finally:
            exchange.ended_s = time.monotonic()
