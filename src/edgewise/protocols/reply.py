"""What an OpenAI request asked of its reply, and the reply gathered from events for the answer in one piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta, PartEnd, PartKind, PartStart
from edgewise.core.requests import RequestTimings, TokenLogprob, Usage
from edgewise.protocols.fields import Fields

MAX_REQUEST_ID_CHARS = 200


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """How the reply is to look. `logprobs` is the number of alternatives shown per token; None shows nothing."""

    stream: bool = False
    num_choices: int = 1  # shown per prompt
    best_of: int = 1  # made per prompt, >= num_choices
    include_usage: bool = False
    continuous_usage: bool = False
    logprobs: int | None = None
    prompt_logprobs: bool = False
    token_ids: bool = False
    tokens_as_ids: bool = False
    echo: bool = False
    stream_interval: int = 1  # tokens per streamed chunk
    legacy_calls: bool = False  # a call is written as `function_call`, as before there were tools
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """The constant fields of every object of one reply."""

    id: str
    created: int  # seconds since 1970
    model: str


@dataclass(slots=True)
class PromptEcho:
    """The prompt as a reply repeats it. `logprobs[i]` is of token i, None for the first.

    The logprobs are None when not asked for, and until the prompt has been read: the server sets them then.
    """

    text: str = ""
    token_ids: Sequence[int] = ()
    logprobs: Sequence[TokenLogprob | None] | None = None
    cached_tokens: int = 0  # what the prefix cache held of it just before the request was submitted


class TokenNames(Protocol):
    """The part of a tokenizer that names single tokens."""

    def token_text(self, token_id: int, /) -> str: ...

    def token_bytes(self, token_id: int, /) -> bytes: ...


def read_reply_options(fields: Fields, sampling: dict[str, Any]) -> ReplyOptions:
    """The reply fields both OpenAI endpoints share; raises `sampling["n"]` to best_of where that is larger."""
    stream = fields.boolean("stream")
    num_choices = sampling.get("n", 1)
    best_of = fields.integer("best_of", low=1)
    if best_of is not None and best_of < num_choices:
        raise fields.fail("best_of", f"must be at least n ({num_choices})", best_of)
    if stream and best_of is not None and best_of > num_choices:
        raise fields.fail("best_of", "larger than n cannot be streamed", best_of)
    if stream and sampling.get("prompt_logprobs") is not None:
        raise fields.fail("prompt_logprobs", "cannot be streamed")
    if best_of is not None:
        sampling["n"] = best_of
    usage, continuous = _read_stream_options(fields, stream)
    return ReplyOptions(
        stream=stream,
        num_choices=num_choices,
        best_of=best_of or num_choices,
        include_usage=usage,
        continuous_usage=continuous,
        prompt_logprobs=sampling.get("prompt_logprobs") is not None,
        token_ids=fields.boolean("return_token_ids"),
        tokens_as_ids=fields.boolean("return_tokens_as_token_ids"),
        echo=fields.boolean("echo"),
        stream_interval=fields.integer("stream_interval", low=1) or 1,
        request_id=fields.string("request_id", max_len=MAX_REQUEST_ID_CHARS) or None,
    )


def _read_stream_options(fields: Fields, stream: bool) -> tuple[bool, bool]:
    options = fields.object("stream_options")
    if options is None or not options.data:
        return False, False
    if not stream:
        raise fields.fail("stream_options", "may only be given when stream is true")
    return options.boolean("include_usage"), options.boolean("continuous_usage_stats")


@dataclass(slots=True)
class ReplyPart:
    """One finished or growing part of a choice."""

    kind: PartKind
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(slots=True)
class Choice:
    """One choice as far as it has come."""

    parts: list[ReplyPart] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None
    matched_stop: str | int | None = None

    def text_of(self, kind: PartKind) -> str:
        return "".join(part.text for part in self.parts if part.kind == kind)

    @property
    def cumulative_logprob(self) -> float:
        return sum(entry.logprob for entry in self.logprobs)


@dataclass(slots=True)
class Reply:
    """The events of one prompt gathered: `choices` by number, the usage of all, the error that ended it if one did."""

    choices: list[Choice]
    usage: Usage = field(default_factory=Usage)
    timings: RequestTimings | None = None
    error: Exception | None = None

    @classmethod
    def empty(cls, num_choices: int) -> Reply:
        return cls([Choice() for _ in range(num_choices)])

    def add(self, events: Iterable[ChatEvent]) -> None:
        for event in events:
            match event:
                case PartDelta(choice=number):
                    choice = self.choices[number]
                    choice.parts[-1].pieces.append(event.text)
                    choice.parts[-1].logprobs.extend(event.logprobs or ())
                    choice.token_ids.extend(event.token_ids)
                    choice.logprobs.extend(event.logprobs or ())
                case PartStart(choice=number):
                    self.choices[number].parts.append(ReplyPart(event.kind, event.id, event.name))
                case Finish(choice=number):
                    self.choices[number].finish_reason = event.reason
                    self.choices[number].matched_stop = event.matched_stop
                    self.usage = event.usage
                    self.timings = event.timings or self.timings
                case Failed():
                    self.error = event.error
                case PartEnd():
                    pass

    def best(self, count: int) -> list[Choice]:
        """The `count` choices with the highest cumulative logprob, in order of merit when some are left out."""
        if count >= len(self.choices):
            return self.choices
        return sorted(self.choices, key=lambda choice: -choice.cumulative_logprob)[:count]


def add_usage(total: Usage, more: Usage) -> Usage:
    """The usage of two prompts of one request."""
    return replace(
        total,
        prompt_tokens=total.prompt_tokens + more.prompt_tokens,
        completion_tokens=total.completion_tokens + more.completion_tokens,
        cached_tokens=total.cached_tokens + more.cached_tokens,
        reasoning_tokens=total.reasoning_tokens + more.reasoning_tokens,
    )


def encode_timings(timings: RequestTimings | None, usage: Usage) -> dict[str, Any]:
    """llama-server's `timings` as a field of a reply, milliseconds; nothing where an answer has none.

    The prompt's time is from the first step that ran the request to the first token, the answer's from there to the end.
    """
    if timings is None or not timings.first_token_s:
        return {}
    prompt_n, predicted_n = usage.prompt_tokens - usage.cached_tokens, usage.completion_tokens
    prompt_ms = 1e3 * (timings.first_token_s - timings.scheduled_s)
    predicted_ms = 1e3 * (timings.finished_s - timings.first_token_s)
    return {
        "timings": {
            "cache_n": usage.cached_tokens,
            "prompt_n": prompt_n,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": prompt_ms / max(1, prompt_n),
            "prompt_per_second": 1e3 * prompt_n / prompt_ms if prompt_ms else 0.0,
            "predicted_n": predicted_n,
            "predicted_ms": predicted_ms,
            "predicted_per_token_ms": predicted_ms / max(1, predicted_n),
            "predicted_per_second": 1e3 * predicted_n / predicted_ms if predicted_ms else 0.0,
        }
    }


def encode_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
