"""What the Python API gives back: whole answers (`RequestOutput`) and pieces of one (`StreamDelta`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgewise.core.chat import ToolCall
from edgewise.core.requests import RequestTimings, TokenLogprob, Usage


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One choice of an answer."""

    index: int
    text: str
    token_ids: tuple[
        int, ...
    ]  # generated, up to the one that completed a stop string; a stop token is left out
    finish_reason: str  # stop, length, cancelled, error
    stop_reason: str | int | None = None  # the stop string or stop token that ended it
    logprobs: tuple[TokenLogprob, ...] | None = None  # one for each of token_ids
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None

    @property
    def cumulative_logprob(self) -> float | None:
        """Sum of the tokens' log probabilities, when they were asked for."""
        return None if self.logprobs is None else sum(entry.logprob for entry in self.logprobs)


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """The answer to one prompt: `n` choices, and what they cost. The first choice's fields lie directly on it."""

    request_id: str
    prompt: str | None  # the text, as rendered for chats; None for token ids
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    usage: Usage
    timings: RequestTimings | None = None
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = (
        None  # one for each prompt token; None for the first
    )
    error: Exception | None = None  # set when the finish reason is "error"

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.outputs[0].token_ids

    @property
    def finish_reason(self) -> str:
        return self.outputs[0].finish_reason

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...] | None:
        return self.outputs[0].logprobs

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.outputs[0].tool_calls

    @property
    def reasoning(self) -> str | None:
        return self.outputs[0].reasoning

    @property
    def prompt_tokens(self) -> int:
        return self.usage.prompt_tokens

    @property
    def num_cached_tokens(self) -> int:
        return self.usage.cached_tokens

    @property
    def finished(self) -> bool:
        """Always true: the field that tells a whole answer from a `StreamDelta`."""
        return True


@dataclass(frozen=True, slots=True)
class StreamDelta:
    """A piece of an answer as it is generated. The last one of a choice has `finished` set and may have no text."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    prompt_tokens: int = 0
    finished: bool = False
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    audio_bytes: bytes = b""
    index: int = 0  # which of the `n` choices
    reasoning: str = ""
    tool_call: ToolCall | None = None  # a call that is complete; while it is made deltas have only token ids
    stop_reason: str | int | None = None
    usage: Usage | None = None  # on the last delta of a choice
    timings: RequestTimings | None = field(default=None)  # on the last delta of a choice
