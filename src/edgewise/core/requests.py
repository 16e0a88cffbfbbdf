"""What the engine is asked (`GenerationRequest`) and what it answers (`TokenEvent`): messages, never shared state."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from edgewise.core.sampling import SamplingParams

FinishReason = str
"""One of "stop", "length", "cancelled", "error"."""

Pooling = Literal["last", "mean"]
"""How the hidden states of a prompt become one vector: the last token's, or the mean of all."""


class RequestState(enum.Enum):
    """Where an accepted request is. Exactly one of the last three ends it."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TokenConstraint(Protocol):
    """A grammar's view of the next token; one instance per sequence, engine thread only. Structured output plugs in here."""

    def mask(self) -> npt.NDArray[np.uint32] | None:
        """Bit set = token allowed, u32[ceil(V / 32)], valid until the next call; None: everything is allowed."""
        ...

    def forced(self) -> list[int]:
        """Token ids that must come next (canonical tokenisation), or an empty list."""
        ...

    def accept(self, token: int) -> bool:
        """Advance over a sampled token; True when the text may end here and nothing more can follow."""
        ...

    def fork(self) -> TokenConstraint:
        """An independent copy, for `n` choices."""
        ...


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to continue, in tokens. Immutable; safe to hand between threads.

    `eos_token_ids` end the output unless `sampling.ignore_eos`; they and `sampling.stop_token_ids` are the only stops the
    engine knows: stop strings are found where text exists, which then cancels the rest.
    """

    request_id: str
    prompt_token_ids: npt.NDArray[np.int32]  # i32[P], P >= 1
    sampling: SamplingParams
    eos_token_ids: frozenset[int] = frozenset()
    priority: int = 0  # lower runs earlier; only the priority policy reads it
    cache_salt: str = ""  # separates prefix caches of tenants
    cache_output: bool = (
        True  # False: later requests find the prompt in the cache, but not what was generated
    )
    cache_borders: tuple[
        int, ...
    ] = ()  # prompt positions where a later request is likely to branch (message borders)
    outputs_from: int | None = (
        None  # first prompt position whose output is wanted (prompt_logprobs, echo); None: last only
    )
    bad_word_ids: tuple[tuple[int, ...], ...] = ()  # tokenised sampling.bad_words
    constraint: Callable[[], TokenConstraint] | None = None  # makes the first sequence's grammar state
    pooling: Pooling | None = (
        None  # an embedding of the prompt is wanted, and no token; sampling then says nothing
    )
    arrival_s: float = 0.0  # time.monotonic() when accepted


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log probability of one token and of its alternatives, best first, from the unmodified f32 logits."""

    token_id: int
    logprob: float
    rank: int  # 1 = most likely
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class RequestTimings:
    """When things happened, seconds on time.monotonic()."""

    arrival_s: float
    scheduled_s: float  # first step that ran it
    first_token_s: float
    finished_s: float


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """News of one choice of a request. `finish_reason` is set on that choice's last event.

    After a "cancelled" or "error" finish no event of any choice follows.
    """

    choice: int
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None  # once, with the first event
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None  # the token that ended it, when one did; it is not in token_ids
    error: Exception | None = None
    num_cached_tokens: int = 0
    timings: RequestTimings | None = None  # on a choice's last event
    embedding: npt.NDArray[np.float32] | None = None  # f32[E], where pooling was asked for: the only event


TokenSink = Callable[[TokenEvent], None]
"""Called on the engine thread for every event; must be quick and never block."""


@dataclass(slots=True)
class Usage:
    """Token counts of one request, all choices together."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot of the engine, made by its thread after each step; readers never lock it."""

    num_running: int = 0
    num_waiting: int = 0
    kv_usage: float = 0.0  # share of blocks held by running sequences, 0..1
    num_blocks: int = 0
    num_free_blocks: int = 0
    num_preemptions: int = 0
    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    steps: int = 0
    extra: dict[str, float] = field(default_factory=dict)
