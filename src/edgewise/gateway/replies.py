"""Answers in one piece, and an upstream's errors, as the client's API has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.responses import Response

from edgewise.gateway.attempts import Begun
from edgewise.gateway.calls import Call
from edgewise.gateway.parts import BrokenReplyError
from edgewise.gateway.profile import Api
from edgewise.serving.errors import HttpError, error_response

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


async def whole_answer(begun: Begun) -> Response:
    body = await read_whole(begun)
    return begun.plan.answer(body, begun.reply.status, passed_headers(begun.reply.headers))


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An upstream's error: the answer for a client that has had no header yet, and what the last event of one that has says."""

    error: HttpError
    response: Response


async def error_answer(call: Call, begun: Begun) -> ErrorAnswer:
    """An upstream's error, byte for byte where it is an error object of the client's API already."""
    try:
        body = await begun.reply.read()
    except BrokenReplyError:
        body = b""
    reply = begun.reply
    error = read_error(begun.route.upstream.name, reply.status, body, reply.headers)
    if begun.plan.native and _is_error_object(call.api, body):
        return ErrorAnswer(error, Response(body, reply.status, passed_headers(reply.headers)))
    return ErrorAnswer(error, error_response(error, {"type": "http", "path": call.api.value}))


def _is_error_object(api: Api, body: bytes) -> bool:
    value = _object(body)
    error = value.get("error")
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return False
    if api in (Api.MESSAGES, Api.COUNT_TOKENS):
        return value.get("type") == "error" and isinstance(error.get("type"), str)
    return error.keys() >= {"message", "type", "param", "code"}


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def read_error(upstream: str, status: int, body: bytes, headers: Mapping[str, str]) -> HttpError:
    value = _object(body)
    error = value.get("error")
    fields = error if isinstance(error, dict) else value
    message = next((fields[name] for name in ("message", "detail") if isinstance(fields.get(name), str)), "")
    kind, code = fields.get("type"), fields.get("code")
    return HttpError(
        status,
        message or f"The upstream {upstream} answered with status {status}.",
        kind=kind if isinstance(kind, str) else ("invalid_request_error" if status < 500 else "server_error"),
        code=code if isinstance(code, str) else None,
        headers={"Retry-After": headers["retry-after"]} if "retry-after" in headers else None,
    )
