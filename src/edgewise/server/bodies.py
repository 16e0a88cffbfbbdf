"""Request bodies: read with a size and a silence limit, decoded off the event loop when large.

orjson holds the interpreter lock while it decodes. A long string is quick (some ms per 10 MB), but millions of small values
are not, so a large body is first checked, in steps of a few milliseconds, for how many values it holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import orjson
from fastapi import Request

from edgewise.core.errors import InvalidRequestError
from edgewise.server.errors import ClientGoneError, HttpError

_INLINE_BYTES = 32 * 1024
_COUNTED_BYTES = 1 << 20
_MAX_VALUES = 1_000_000
_OPENERS_AND_COMMAS = (b",", b"[", b"{")


async def read_body(request: Request, *, max_bytes: int, timeout_s: float) -> bytes:
    """The whole body. Raises HttpError 413 or 408, or ClientGoneError; on a 413 the rest is left unread."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await _receive(request, timeout_s)
        if message["type"] == "http.disconnect":
            raise ClientGoneError("the client left while sending its request")
        if piece := message.get("body", b""):
            pieces.append(piece)
            size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _receive(request: Request, timeout_s: float) -> Any:
    try:
        return await asyncio.wait_for(request.receive(), timeout_s)
    except TimeoutError:
        raise HttpError(
            408, f"The request's body stopped coming for {timeout_s:g} s.", code="body_timeout"
        ) from None


def _too_large(max_bytes: int) -> HttpError:
    message = f"The request's body is larger than this server's limit of {max_bytes} bytes."
    return HttpError(413, message, code="body_too_large")


async def read_json(request: Request, executor: Executor, *, max_bytes: int, timeout_s: float) -> Any:
    """The decoded JSON body. Raises InvalidRequestError when it is not JSON, else as `read_body`."""
    body = await read_body(request, max_bytes=max_bytes, timeout_s=timeout_s)
    if len(body) <= _INLINE_BYTES:
        return decode_json(body)
    return await asyncio.get_running_loop().run_in_executor(executor, decode_json, body)


def decode_json(body: bytes) -> Any:
    """JSON text -> values. Raises InvalidRequestError naming what is wrong, HttpError 413 for far too many values."""
    if not body.strip():
        raise InvalidRequestError(
            "The request's body is empty; it must be a JSON object.", code="invalid_json"
        )
    if len(body) > _COUNTED_BYTES and _holds_more_values_than(_MAX_VALUES, body):
        raise HttpError(
            413, f"The request's body holds more than {_MAX_VALUES} values.", code="body_too_large"
        )
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(
            f"The request's body is not valid JSON: {error}", code="invalid_json"
        ) from None


def _holds_more_values_than(limit: int, body: bytes) -> bool:
    """Whether more than `limit` values stand in the JSON text. Each step is one pass at memory speed."""
    plain = body
    if b"\\" in body:
        plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 2 * limit:
        return True
    outside = b"".join(plain.split(b'"')[::2])
    count: Callable[[bytes], int] = outside.count
    return sum(map(count, _OPENERS_AND_COMMAS)) > limit
