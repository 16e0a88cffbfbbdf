"""Errors as HTTP answers: the OpenAI error object with the status and headers that belong to it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from edgewise.core.errors import EdgewiseError, OverloadedError
from edgewise.protocols.errors import encode_error, error_object, status_of

logger = logging.getLogger("edgewise.server")


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


def error_response(error: Exception) -> Response:
    """The answer for an error raised before any header was sent. Unexpected errors are logged with their trace."""
    if isinstance(error, HttpError):
        body = error_object(error.message, error.kind, code=error.code)
        return JsonResponse(body, error.status, error.headers)
    status = status_of(error)
    if isinstance(error, ClientGoneError):
        return Response(status_code=499)
    if status >= 500 and not isinstance(error, OverloadedError):
        logger.error("request failed: %s", error, exc_info=error)
    headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, OverloadedError) else None
    return JsonResponse(encode_error(error), status, headers)


async def _on_error(_request: Request, error: Exception) -> Response:
    return error_response(error)


async def _on_http_exception(_request: Request, error: Exception) -> Response:
    """Unknown paths and methods, from the router."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
    body = error_object(str(error.detail), "invalid_request_error", code=code)
    return JsonResponse(body, error.status_code, dict(error.headers or {}))


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(EdgewiseError, _on_error)
    app.add_exception_handler(Exception, _on_error)
