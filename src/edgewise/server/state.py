"""What the routes share: the pipeline, the options, the gate, the executor, the counters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from fastapi import Request

from edgewise.core.errors import ContextLengthError, InvalidRequestError
from edgewise.pipeline import Pipeline
from edgewise.server.admission import AdmissionGate
from edgewise.server.metrics import MetricsCollector
from edgewise.server.options import ServerOptions
from edgewise.serving.bodies import decode_json, least_text_bytes, read_body
from edgewise.serving.ignored import IgnoredFields

P = ParamSpec("P")
T = TypeVar("T")

_ANONYMOUS_NAMES = ("", "local")
_INLINE_BYTES = 32 << 10
_SURELY_DECODED_BYTES = 1 << 20  # room for what is no text: names, schemas, fields without effect


@dataclass(slots=True)
class ServerState:
    """One application's state. Event loop only, except what the executor runs."""

    pipeline: Pipeline
    options: ServerOptions
    gate: AdmissionGate  # of generating requests
    side_gate: AdmissionGate  # of those that only tokenise: counting must work while answers run
    executor: ThreadPoolExecutor
    collector: MetricsCollector | None = None  # None: metrics are turned off
    ignored: IgnoredFields = field(default_factory=IgnoredFields)
    num_bare_calls: int = 0  # calls that a model wrote as plain JSON, since the start
    created_s: int = field(default_factory=lambda: int(time.time()))

    @property
    def model_name(self) -> str:
        return self.options.served_model_name or self.pipeline.model_name or "default"

    @property
    def model_names(self) -> tuple[str, ...]:
        return (self.model_name, *self.options.model_aliases)

    @property
    def heeds_priority(self) -> bool:
        """Whether requests run in the order of their `priority`."""
        resolved = self.pipeline.resolved
        return resolved is not None and resolved.scheduling_policy == "priority"

    def check_model(self, name: str) -> None:
        """Raises InvalidRequestError (404) for a name that is not served, where names are strict."""
        if self.options.strict_model_names and name not in _ANONYMOUS_NAMES and name not in self.model_names:
            raise InvalidRequestError(
                f"The model {name!r} is not served here; {self.model_name!r} is.",
                param="model",
                code="model_not_found",
            )

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run something that blocks (templates, tokenising) beside the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.executor, lambda: function(*args, **kwargs))

    async def read(
        self,
        request: Request,
        parse: Callable[[object], T],
        *,
        bounded: bool = False,
        max_bytes: int | None = None,
    ) -> T:
        """What `parse` makes of the JSON body, made beside the event loop when the body is large.

        `bounded`: a body whose text cannot fit the window even at the longest token is refused unread.
        `max_bytes`: of a body that means something here, where that is less than the server takes.
        """
        options = self.options
        most = min(options.max_body_bytes, max_bytes or options.max_body_bytes)
        body = await read_body(request, max_bytes=most, timeout_s=options.body_timeout_s)
        if len(body) <= _INLINE_BYTES:
            return parse(decode_json(body))
        return await self.run(self._parse_large, body, parse, bounded)

    def _parse_large(self, body: bytes, parse: Callable[[object], T], bounded: bool) -> T:
        pipeline = self.pipeline
        longest = pipeline.tokenizer.max_token_bytes
        if bounded and len(body) > _SURELY_DECODED_BYTES:
            text_bytes = least_text_bytes(body) - _SURELY_DECODED_BYTES
            if text_bytes > 2 * pipeline.max_input_len * longest:
                raise ContextLengthError(
                    prompt_tokens=text_bytes // longest,
                    max_model_len=pipeline.max_input_len,
                    at_least=True,
                    subject="the text of your request",
                )
        return parse(decode_json(body))


def state_of(request: Request) -> ServerState:
    state: ServerState = request.app.state.edgewise
    return state


def client_of(request: Request) -> str:
    """Who asks, for log lines: address and program."""
    host = request.client.host if request.client else "?"
    return f"{host} ({request.headers.get('user-agent', 'unknown client')[:64]})"
