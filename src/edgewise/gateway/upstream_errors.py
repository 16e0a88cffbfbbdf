"""Errors of upstreams: what a client is told of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

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
