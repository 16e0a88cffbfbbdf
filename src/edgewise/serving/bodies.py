"""Request bodies: read with a size and a silence limit, weighed and decoded. `ServerState.read` puts it together.

orjson holds the interpreter lock while it decodes. A long string is quick (20 ms per 10 MB), but hundreds of thousands of
objects are not, so a large body is first weighed, in steps of a millisecond.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import Request

from edgewise.core.errors import InvalidRequestError
from edgewise.serving.errors import ClientGoneError, HttpError

_WEIGHED_BYTES = 1 << 20
_SLICE_BYTES = 1 << 18
_MAX_WEIGHT = 300_000  # 2.4 million numbers, or a conversation of 50,000 messages


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
        async with asyncio.timeout(timeout_s):  # wait_for would make a task of each piece
            return await request.receive()
    except TimeoutError:
        raise HttpError(
            408, f"The request's body stopped coming for {timeout_s:g} s.", code="body_timeout"
        ) from None


def _too_large(max_bytes: int) -> HttpError:
    message = f"The request's body is larger than this server's limit of {max_bytes} bytes."
    return HttpError(413, message, code="body_too_large")


def least_text_bytes(body: bytes) -> int:
    """A lower bound of the text in a JSON body: an escape sequence takes at most six bytes for one.

    Names, punctuation and fields without effect count as text, so the bound says something of bodies far too large only.
    """
    escapes = sum(body[i : i + _SLICE_BYTES].count(b"\\") for i in range(0, len(body), _SLICE_BYTES))
    return max(0, len(body) - 5 * escapes)


def decode_json(body: bytes) -> Any:
    """JSON text -> values. Raises InvalidRequestError naming what is wrong, HttpError 413 for far too many values."""
    if not body.strip():
        raise InvalidRequestError(
            "The request's body is empty; it must be a JSON object.", code="invalid_json"
        )
    if len(body) > _WEIGHED_BYTES and weight_of(body, _MAX_WEIGHT) > _MAX_WEIGHT:
        raise HttpError(413, "The request's body holds too many values.", code="body_too_large")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(
            f"The request's body is not valid JSON: {error}", code="invalid_json"
        ) from None


def weight_of(body: bytes, enough: int) -> float:
    """How long JSON text takes to decode beyond its plain bytes: about 0.3 us a unit. Stops counting above `enough`.

    A string or a container weighs 1, a number an eighth. What looks like JSON inside strings weighs nothing.
    """
    weight = 0.0
    inside_string = False
    position = 0
    while position < len(body) and weight <= enough:
        end = position + _SLICE_BYTES
        while body[end - 1 : end] == b"\\":  # an escape stays in one slice
            end += 1
        piece = body[position:end].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        outside = b"".join(parts[inside_string::2])
        weight += (len(parts) - 1) / 2 + outside.count(b"{") + outside.count(b"[") + outside.count(b",") / 8
        inside_string ^= len(parts) % 2 == 0
        position = end
    return weight
