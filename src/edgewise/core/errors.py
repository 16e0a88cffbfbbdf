"""The tree of errors. A person's or a program's bad input raises one of these; `assert` is for our own bugs.

EdgewiseError
├── InvalidRequestError        a request that can never succeed as it is (HTTP 400)
│   └── ContextLengthError     prompt does not fit the window; carries both numbers
├── RequestCancelledError      the caller cancelled, or the engine is closing
├── OverloadedError            no room in the queue now; try again (HTTP 503, 529 on Anthropic)
├── UpstreamError              another server answered with an error, which is passed on
├── EngineDeadError            the engine thread failed; nothing can be served (HTTP 500)
├── ModelError                 a checkpoint or engine directory cannot be used
│   ├── ModelNotFoundError     no such catalog name, file or repository
│   ├── CheckpointError        missing, truncated or odd checkpoint; names the file and the field
│   ├── UnsupportedModelError  well formed, but needs something this version lacks; names it
│   ├── TokenizerError         vocabulary missing, inconsistent or of an unknown kind
│   └── EngineDirError         corrupt, truncated, foreign or newer engine directory
├── DownloadError              network, size, hash or disk trouble while fetching
└── ConfigError                an option has a bad value or contradicts another
"""

from __future__ import annotations


class EdgewiseError(Exception):
    """Base of every error Edgewise raises on purpose. `hint` says what to do, in one line, if anything."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InvalidRequestError(EdgewiseError):
    """A request that can never succeed as it is. `param` is the dotted name of the field at fault."""

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.param = param
        self.code = code


class ContextLengthError(InvalidRequestError):
    """The prompt (plus at least one token) does not fit the window.

    `at_least`: it was refused before it was counted. `subject`: what has the tokens, where it is not one prompt.
    """

    def __init__(
        self,
        *,
        prompt_tokens: int,
        max_model_len: int,
        param: str | None = None,
        at_least: bool = False,
        subject: str = "your prompt",
    ) -> None:
        super().__init__(
            f"This model's maximum context length is {max_model_len} tokens. However, {subject} has "
            f"{'at least ' if at_least else ''}{prompt_tokens} tokens. Please shorten it.",
            param=param,
            code="context_length_exceeded",
        )
        self.prompt_tokens = prompt_tokens
        self.max_model_len = max_model_len
        self.at_least = at_least


class RequestCancelledError(EdgewiseError):
    """The request was cancelled before it finished."""


class OverloadedError(EdgewiseError):
    """The queue is full. `retry_after_s` is how long to wait."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UpstreamError(EdgewiseError):
    """Another server's error, passed on: its HTTP status, and the type, code and field of its error object where it gave them."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 502,
        kind: str = "server_error",
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param


class EngineDeadError(EdgewiseError):
    """The engine thread ended with an error; every request fails with its reason."""


class ModelError(EdgewiseError):
    """A model cannot be used."""


class ModelNotFoundError(ModelError):
    """No such catalog name, file, folder or repository."""


class CheckpointError(ModelError):
    """A checkpoint file is missing, truncated or malformed."""


class UnsupportedModelError(ModelError):
    """A well-formed model that needs something this version lacks."""


class TokenizerError(ModelError):
    """A vocabulary is missing, inconsistent or of an unknown kind."""


class EngineDirError(ModelError):
    """An engine directory is corrupt, truncated, foreign or newer than this version."""


class DownloadError(EdgewiseError):
    """A download failed: network, size, hash or disk."""


class ConfigError(EdgewiseError):
    """An option has a bad value or contradicts another."""
