"""Sequence and ActiveRequest: the engine's objects for life. Written by the engine thread only.

A sequence's tokens are its prompt and what was generated. Slots `0 .. num_computed` of its block table hold the KV of the tokens
there; the tokens from `num_computed` on are *pending*: the next steps must run them. One pending token is a plain decode step.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgewise.core.requests import FinishReason, GenerationRequest, TokenConstraint, TokenLogprob, TokenSink
from edgewise.engine.pooling import Pooler
from edgewise.engine.prefix_tree import Node, token_symbols

if TYPE_CHECKING:
    from edgewise.engine.sampler_state import SamplerState


NO_PROMPT_OUTPUT = 1 << 62  # no output inside the prompt is wanted (any more)


class Phase(enum.Enum):
    """Where a sequence is."""

    WAITING = 0  # holds no blocks
    PREFILL = 1  # running; its prompt (or what a preemption took) is being computed
    DECODE = 2  # running; every step gives a token
    ENDED = 3  # holds no blocks; nothing happens any more


class ActiveRequest:
    """An accepted request and its sequences, from `submit` to its last event."""

    __slots__ = (
        "finish_reasons", "first_token_s", "max_tokens", "num_cached_tokens", "num_preemptions", "order", "prompt_logprobs", "request",
        "scheduled_s", "seed", "sequences", "sink", "unfinished",
    )  # fmt: skip

    def __init__(self, request: GenerationRequest, sink: TokenSink, *, seed: int, order: int = 0) -> None:
        self.request = request
        self.sink = sink
        self.order = order  # of acceptance; breaks every tie
        self.seed = seed
        self.sequences: list[Sequence] = []
        self.unfinished = request.sampling.n  # choices without a finish
        self.finish_reasons: list[FinishReason] = []
        self.max_tokens = 0  # of each choice, set with the first
        self.prompt_logprobs: list[TokenLogprob | None] | None = None
        self.num_cached_tokens = 0
        self.num_preemptions = 0
        self.scheduled_s = 0.0
        self.first_token_s = 0.0


class Sequence:
    """One token stream of a request."""

    __slots__ = (
        "_token_ids", "block_table", "cache_epoch", "choice", "constraint", "first_token_s", "last_token_s", "max_tokens",
        "next_prompt_output", "node", "num_blocks", "num_committed", "num_computed", "num_computed_before", "num_generated",
        "num_prompt", "num_tokens", "output_ids", "owner", "phase", "pooler", "rank", "salt", "sampler", "shares_tail",
        "stop_ids",
    )  # fmt: skip

    def __init__(
        self,
        owner: ActiveRequest,
        choice: int,
        *,
        max_model_len: int,
        block_size: int,
        parent: Sequence | None = None,
    ) -> None:
        """`parent`: the first choice, at the end of its prompt, whose grammar state another choice copies."""
        request = owner.request
        self.owner = owner
        self.choice = choice
        self.phase = Phase.WAITING
        self.rank: tuple[float, int, int] = (
            0.0,
            owner.order,
            choice,
        )  # smaller runs earlier, set by the scheduler
        self.num_prompt = len(request.prompt_token_ids)
        room = max_model_len - self.num_prompt
        wanted = request.sampling.max_tokens
        self.max_tokens = room if wanted is None else min(wanted, room)
        capacity = self.num_prompt + self.max_tokens
        self._token_ids = np.empty(min(capacity, self.num_prompt + 256), np.int32)
        self._token_ids[: self.num_prompt] = request.prompt_token_ids
        self.num_tokens = self.num_prompt
        self.output_ids: list[int] = []
        self.num_generated = 0  # output_ids and the token that stopped it
        # KV. A sequence holds `num_blocks` blocks; the first `num_committed` are full and those of tree nodes up to `node`.
        self.block_table = np.empty(-(-capacity // block_size), np.int32)
        self.num_blocks = 0
        self.num_committed = 0
        self.num_computed = 0
        self.num_computed_before = (
            0  # most tokens this sequence ever computed itself: what a preemption took is no cache hit
        )
        self.shares_tail = False  # its last block may have other holders: copy it before writing
        self.node: Node | None = None
        self.cache_epoch = 0
        self.salt = request.cache_salt.encode("utf-8", "surrogatepass")
        # Outputs.
        self.next_prompt_output = NO_PROMPT_OUTPUT
        first_output = request.outputs_from or 0
        if (
            request.sampling.prompt_logprobs is not None
            and choice == 0
            and first_output < self.num_prompt - 1
        ):
            self.next_prompt_output = first_output
        self.pooler = None if request.pooling is None else Pooler()
        if request.pooling == "mean":
            self.next_prompt_output = 0
        self.stop_ids = frozenset(request.sampling.stop_token_ids)
        if not request.sampling.ignore_eos:
            self.stop_ids |= request.eos_token_ids
        self.sampler: SamplerState  # set by the one who makes the sequence
        self.constraint: TokenConstraint | None = None
        if parent is not None and parent.constraint is not None:
            self.constraint = parent.constraint.fork()
        elif request.constraint is not None:
            self.constraint = request.constraint()
        self.first_token_s = 0.0
        self.last_token_s = 0.0

    @property
    def token_ids(self) -> npt.NDArray[np.int32]:
        """i32[num_tokens]: a view, valid until the next `append`."""
        return self._token_ids[: self.num_tokens]

    @property
    def num_pending(self) -> int:
        """Tokens whose KV is not computed."""
        return self.num_tokens - self.num_computed

    @property
    def first_output(self) -> int:
        """The first token whose output is wanted of those not computed."""
        return min(self.next_prompt_output, self.num_tokens - 1)

    def append(self, token: int) -> None:
        """One more generated token."""
        if self.num_tokens == len(self._token_ids):
            grown = np.empty(2 * self.num_tokens, np.int32)
            grown[: self.num_tokens] = self._token_ids
            self._token_ids = grown
        self._token_ids[self.num_tokens] = token
        self.num_tokens += 1
        self.output_ids.append(token)

    def symbols(self, start: int, stop: int) -> bytes:
        """The prefix cache's names of tokens start..stop."""
        return token_symbols(self._token_ids[start:stop])
