"""Questions beside generation: an upstream's own tokenizer, where it has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

import orjson
from fastapi import Request
from starlette.responses import Response

from edgewise.core.errors import InvalidRequestError
from edgewise.core.keys import KeyRecord
from edgewise.gateway.headers import passed_headers
from edgewise.gateway.parts import (
    BrokenReplyError,
    ForwardOptions,
    NotBegunError,
    Router,
    Transport,
    Upstream,
)
from edgewise.gateway.profile import Kind
from edgewise.serving.bodies import decode_json, read_body
from edgewise.serving.errors import HttpError

TOKENIZING = frozenset({"/tokenize", "/detokenize", "/apply-template"})

_TIMEOUT_S = 60.0


def tokenizing_paths(kind: Kind) -> frozenset[str]:
    """The paths about tokens that a kind of upstream answers."""
    match kind:
        case Kind.LLAMA:
            return TOKENIZING
        case Kind.EDGEWISE | Kind.VLLM:
            return frozenset({"/tokenize", "/detokenize"})
        case Kind.EDGE_LLM | Kind.OPENAI:
            return frozenset()
        case _:
            assert_never(kind)


class Side:
    """Asks upstreams what is no generation: without a place in their queues. Event loop only."""

    def __init__(self, router: Router, transport: Transport, options: ForwardOptions) -> None:
        self._router = router
        self._transport = transport
        self._options = options

    async def ask(
        self, upstream: Upstream, path: str, body: bytes, *, timeout_s: float = _TIMEOUT_S
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Status, body, headers. Raises HttpError 502 where there is no answer."""
        try:
            with upstream.lease():
                reply = await self._transport.send(
                    "POST",
                    upstream.address(path),
                    {"content-type": "application/json", **upstream.headers},
                    body,
                    timeout=timeout_s,
                )
                try:
                    return reply.status, await reply.read(), reply.headers
                finally:
                    await reply.aclose()
        except (NotBegunError, BrokenReplyError):
            raise HttpError(
                502,
                f"The upstream {upstream.name} could not be reached.",
                kind="server_error",
                code="upstream_unreachable",
            ) from None

    async def tokenize(self, request: Request, key: KeyRecord) -> Response:
        """/tokenize and its like, answered by the first upstream for the model that has the path."""
        path = request.url.path
        options = self._options
        raw = await read_body(request, max_bytes=options.max_body_bytes, timeout_s=options.body_timeout_s)
        body = decode_json(raw)
        if not isinstance(body, dict):
            raise InvalidRequestError("The request's body must be a JSON object.", code="invalid_json")
        for route in self._router.routes(_model_of(body), affinity=""):
            if path in tokenizing_paths(route.upstream.profile.kind):
                sent = orjson.dumps({**body, "model": route.model}) if "model" in body else raw
                status, answer, headers = await self.ask(route.upstream, path, sent)
                return Response(answer, status, passed_headers(headers))
        raise HttpError(404, f"The model's server does not offer {path}.", code="not_found")


def _model_of(body: dict[str, Any]) -> str:
    model = body.get("model")
    return model if isinstance(model, str) else ""
