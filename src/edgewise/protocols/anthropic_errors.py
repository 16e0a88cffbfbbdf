"""The error object of Anthropic's Messages API, before and inside streams.

Claude Code tells a prompt that is too long (and compacts) from the message alone, so its wording is the API's own.
"""

from __future__ import annotations

import uuid
from typing import Any

from edgewise.core.errors import ContextLengthError, OverloadedError
from edgewise.protocols import errors

OVERLOADED = 529

_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    499: "api_error",
    OVERLOADED: "overloaded_error",
}


def status_of(error: Exception) -> int:
    """The HTTP status an error is answered with: the other APIs', but for the one that means "come back later"."""
    return OVERLOADED if isinstance(error, OverloadedError) else errors.status_of(error)


def error_object(message: str, status: int) -> dict[str, Any]:
    """`request_id` names this answer alone; a server sends it as the `request-id` header too."""
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": f"req_{uuid.uuid4().hex}",
    }


def encode_error(error: Exception) -> dict[str, Any]:
    """The error object of an exception; causes that are not ours stay out of the answer."""
    if isinstance(error, ContextLengthError):
        message = f"prompt is too long: {error.prompt_tokens} tokens > {error.max_model_len} maximum"
    else:
        message = errors.encode_error(error)["error"]["message"]
    return error_object(message, status_of(error))
