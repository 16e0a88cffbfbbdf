"""Answers in one piece, and an upstream's errors, as the client's API has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from starlette.responses import Response

from edgewise.gateway.attempts import Begun
from edgewise.gateway.calls import Call
from edgewise.gateway.parts import BrokenReplyError
from edgewise.serving.errors import HttpError

_PASSED_ON = ("content-type", "retry-after", "x-request-id", "x-should-retry")
_PASSED_ON_PREFIXES = ("openai-", "anthropic-", "x-ratelimit-", "x-edgewise-")


def passed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The upstream's headers that mean something to a client; those of the connection do not."""
    return {
        name: value
        for name, value in headers.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }


def broken(upstream: str) -> HttpError:
    """What a client is told of an upstream that died while it answered."""
    return HttpError(
        502,
        f"The upstream {upstream} stopped in the middle of its answer.",
        kind="server_error",
        code="upstream_broken",
    )


async def read_whole(begun: Begun) -> bytes:
    """The whole body. Raises HttpError 502 where it breaks off."""
    try:
        return await begun.reply.read()
    except BrokenReplyError:
        begun.route.upstream.failed()
        raise broken(begun.route.upstream.name) from None


async def whole_answer(call: Call, begun: Begun) -> Response:
    body = await read_whole(begun)
    reply = begun.reply
    return Response(body, reply.status, passed_headers(reply.headers))


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An upstream's error: the answer for a client that has had no header yet, and what the last event of one that has says."""

    error: HttpError
    response: Response


async def error_answer(call: Call, begun: Begun) -> ErrorAnswer:
    try:
        body = await begun.reply.read()
    except BrokenReplyError:
        body = b""
    reply = begun.reply
    headers = {"Retry-After": reply.headers["retry-after"]} if "retry-after" in reply.headers else {}
    value = orjson.loads(body) if body else {}
    error = HttpError(reply.status, str(value.get("error", {}).get("message")), headers=headers)
    return ErrorAnswer(error, Response(body, reply.status, passed_headers(reply.headers)))
