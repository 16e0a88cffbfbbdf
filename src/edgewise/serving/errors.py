"""Errors as HTTP answers: the error object of the API that was asked, with the status and headers that belong to it.

Which API that is, the path says: `shape_of` is the one place that knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from edgewise.core.errors import EdgewiseError, OverloadedError
from edgewise.protocols import anthropic_errors, errors
from edgewise.serving.paths import route_path

logger = logging.getLogger("edgewise.serving")


class HttpError(EdgewiseError):
    """An error of HTTP itself: status, error type and code, and headers."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.headers = dict(headers or {})


class ClientGoneError(EdgewiseError):
    """The client closed its connection; nobody reads the answer."""


class JsonResponse(Response):
    """JSON by orjson."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """How one API writes errors: the status and the body of an exception, and the body of an error of HTTP itself."""

    status_of: Callable[[Exception], int]
    encode: Callable[[Exception], dict[str, Any]]
    encode_http: Callable[[HttpError], dict[str, Any]]


OPENAI = ErrorShape(
    errors.status_of,
    errors.encode_error,
    lambda error: errors.error_object(error.message, error.kind, code=error.code),
)
ANTHROPIC = ErrorShape(
    anthropic_errors.status_of,
    anthropic_errors.encode_error,
    lambda error: anthropic_errors.error_object(error.message, error.status),
)

_SHAPES = {"/v1/messages": ANTHROPIC}
"""By path, everything below included. All other paths speak OpenAI's."""


def shape_of(scope: Scope) -> ErrorShape:
    """The error shape of the API that a request's path belongs to."""
    path = route_path(scope)
    for prefix, shape in _SHAPES.items():
        if path == prefix or path.startswith(prefix + "/"):
            return shape
    return OPENAI


def error_response(error: Exception, scope: Scope) -> Response:
    """The answer for an error raised before any header was sent. Unexpected errors are logged with their trace."""
    shape = shape_of(scope)
    if isinstance(error, HttpError):
        return _response(shape.encode_http(error), error.status, error.headers)
    if isinstance(error, ClientGoneError):
        return Response(status_code=errors.CLIENT_CLOSED_REQUEST)
    status = shape.status_of(error)
    if status >= 500 and not isinstance(error, OverloadedError):
        logger.error("request failed: %s", error, exc_info=error)
    headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, OverloadedError) else {}
    return _response(shape.encode(error), status, headers)


def _response(body: dict[str, Any], status: int, headers: Mapping[str, str]) -> Response:
    named = {"request-id": body["request_id"]} if "request_id" in body else {}
    return JsonResponse(body, status, {**headers, **named})


async def _on_error(request: Request, error: Exception) -> Response:
    return error_response(error, request.scope)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, from the router."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
    known = HttpError(error.status_code, str(error.detail), code=code, headers=error.headers)
    return error_response(known, request.scope)


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(EdgewiseError, _on_error)
    app.add_exception_handler(Exception, _on_error)
