"""Errors of upstreams: what a client is told of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from edgewise.gateway.coding import CODINGS
from edgewise.gateway.parts import Reply
from edgewise.gateway.profile import Api
from edgewise.serving.errors import HttpError


def broken(upstream: str) -> HttpError:
    """What a client is told of an upstream that died while it answered."""
    return HttpError(
        502,
        f"The upstream {upstream} stopped in the middle of its answer.",
        kind="server_error",
        code="upstream_broken",
    )


def malformed(upstream: str) -> HttpError:
    return HttpError(
        502,
        f"The answer of the upstream {upstream} is not of the kind that was asked for.",
        kind="server_error",
        code="upstream_malformed",
    )


def is_answer(reply: Reply) -> bool:
    """Whether a reply below 400 can hold an answer at all: no redirect, no page to sign in, nothing in a coding that we cannot read."""
    readable = reply.headers.get("content-encoding", "identity") in ("identity", *CODINGS)
    return (
        reply.status == 200 and readable and not reply.headers.get("content-type", "").startswith("text/html")
    )


_MAX_FAULTS = 8
_MAX_READ_BYTES = 256 << 10
_END_BYTES = 64

_TOO_LONG = re.compile(
    r"maximum (context|model|input) length|exceeds? .{0,40}(context|input length|max_input_len|max_model_len)"
    r"|(context|input) (size|length|window) .{0,20}exceed|(prompt|input) is too long",
    re.IGNORECASE | re.DOTALL,
)
"""As llama-server, vLLM, TensorRT-LLM and OpenAI's API say it."""
_OPENAI_NUMBERS = re.compile(
    r"maximum context length is (\d+) tokens.*?(?:requested|has|contains|resulted in)\D{0,20}(\d+)", re.DOTALL
)


def in_words_of(api: Api, error: HttpError, body: bytes) -> HttpError:
    """An error as clients of an API know it: a prompt that is too long has fixed words in each, and makes agents compact.

    Returns `error` itself where it says nothing of the kind, or says it already.
    """
    if error.status not in (400, 413) or not _TOO_LONG.search(error.message):
        return error
    if api not in (Api.MESSAGES, Api.COUNT_TOKENS):
        code = "context_length_exceeded"
        return error if error.code == code else _changed(error, error.message, code)
    if error.message.startswith("prompt is too long"):
        return error
    numbers = _numbers_of(body, error.message)
    said = f"{numbers[0]} tokens > {numbers[1]} maximum" if numbers else error.message
    return _changed(error, f"prompt is too long: {said}", error.code)


def _changed(error: HttpError, message: str, code: str | None) -> HttpError:
    return HttpError(error.status, message, kind=error.kind, code=code, headers=error.headers)


def _numbers_of(body: bytes, message: str) -> tuple[int, int] | None:
    """The prompt's tokens and the most there may be, from llama-server's fields or the words OpenAI and vLLM use."""
    fields = _object(body).get("error")
    if isinstance(fields, dict):
        numbers = fields.get("n_prompt_tokens"), fields.get("n_ctx")
        if isinstance(numbers[0], int) and isinstance(numbers[1], int):
            return numbers[0], numbers[1]
    found = _OPENAI_NUMBERS.search(message)
    return None if found is None else (int(found[2]), int(found[1]))


def is_error_object(api: Api, body: bytes) -> bool:
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


def _words(value: object) -> str:
    """A message, also where it is a list of what is wrong and where, as FastAPI's checks write it."""
    if isinstance(value, str):
        return value
    faults = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
    parts = []
    for fault in faults[:_MAX_FAULTS]:
        place = fault.get("loc")
        where = ".".join(map(str, place)) if isinstance(place, list) else ""
        parts.append(f"{where}: {fault.get('msg')}" if where else str(fault.get("msg")))
    return "; ".join(parts)


_HOLDS = {
    Api.CHAT: ("choices", list),
    Api.COMPLETIONS: ("choices", list),
    Api.MESSAGES: ("content", list),
    Api.RESPONSES: ("output", list),
    Api.EMBEDDINGS: ("data", list),
    Api.COUNT_TOKENS: ("input_tokens", int),
}
"""What an answer of each API has, whatever else it lacks."""


def _looks_like_object(body: bytes) -> bool:
    return body[:_END_BYTES].lstrip().startswith(b"{") and body[-_END_BYTES:].rstrip().endswith(b"}")


def check_answer(upstream: str, api: Api, body: bytes, headers: Mapping[str, str]) -> None:
    """Raises HttpError 502 for a body that is no answer, in its own words where it is an error that came as a success.

    Of a large body only the ends are looked at: reading it would hold all others up, and no error is that long.
    """
    name, kind = _HOLDS[api]
    if len(body) > _MAX_READ_BYTES and _looks_like_object(body):
        return
    value = _object(body)
    if isinstance(value.get(name), kind):
        return
    raise read_error(upstream, 502, body, headers) if value.get("error") else malformed(upstream)


def read_error(upstream: str, status: int, body: bytes, headers: Mapping[str, str]) -> HttpError:
    """What an answer that is no success says; one below 400 says nothing that was asked."""
    if status < 400:
        return malformed(upstream)
    value = _object(body)
    error = value.get("error")
    fields = error if isinstance(error, dict) else value
    message = next((text for name in ("message", "detail") if (text := _words(fields.get(name)))), "")
    kind, code = fields.get("type"), fields.get("code")
    return HttpError(
        status,
        message or f"The upstream {upstream} answered with status {status}.",
        kind=kind if isinstance(kind, str) else ("invalid_request_error" if status < 500 else "server_error"),
        code=code if isinstance(code, str) else None,
        headers={"Retry-After": headers["retry-after"]} if "retry-after" in headers else None,
    )
