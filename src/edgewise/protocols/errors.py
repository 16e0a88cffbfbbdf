"""The OpenAI error object: what every route except the Anthropic ones answers, before and inside streams.

Anthropic's is in `anthropic_errors`.
"""

from __future__ import annotations

from typing import Any

from edgewise.core.errors import (
    EngineDeadError,
    InvalidRequestError,
    OverloadedError,
    RequestCancelledError,
    UpstreamError,
)

CLIENT_CLOSED_REQUEST = 499


def status_of(error: Exception) -> int:
    """The HTTP status an error is answered with."""
    match error:
        case InvalidRequestError(code="model_not_found"):
            return 404
        case InvalidRequestError():
            return 400
        case OverloadedError():
            return 503
        case RequestCancelledError():
            return CLIENT_CLOSED_REQUEST
        case UpstreamError():
            return error.status
        case _:
            return 500


def error_object(
    message: str, kind: str, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def encode_error(error: Exception) -> dict[str, Any]:
    """The error object of an exception; causes that are not ours stay out of the answer."""
    match error:
        case InvalidRequestError():
            message = f"{error.message} {error.hint}" if error.hint else error.message
            return error_object(message, "invalid_request_error", param=error.param, code=error.code)
        case OverloadedError():
            return error_object(error.message, "server_error", code="server_overloaded")
        case RequestCancelledError():
            return error_object(error.message, "server_error", code="request_cancelled")
        case UpstreamError():
            return error_object(error.message, error.kind, param=error.param, code=error.code)
        case EngineDeadError():
            return error_object(
                f"The engine has stopped: {error.message}", "server_error", code="engine_dead"
            )
        case _:
            return error_object(
                "Internal error; the server's log has the cause.", "server_error", code="internal_error"
            )
