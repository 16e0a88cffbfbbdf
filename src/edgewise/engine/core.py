"""EngineCore: one step after the other, without threads. `Engine` runs it on its thread; tests may run it by hand.

A step: schedule, build the batch, run the decoder, record the KV, sample, apply the stop rules, send events.
"""

from __future__ import annotations

import logging
import time

import numpy as np
import numpy.typing as npt

from edgewise.core.errors import RequestCancelledError
from edgewise.core.requests import EngineStats, FinishReason, TokenLogprob
from edgewise.decoder.batch import DecoderRunner, StepFailedError, StepOutput
from edgewise.engine.batching import BatchBuilder
from edgewise.engine.config import EngineConfig
from edgewise.engine.kv_cache import KvCache
from edgewise.engine.pooling import Pooler
from edgewise.engine.records import StepRecord
from edgewise.engine.request_book import OnRequest, RequestBook
from edgewise.engine.sampler import Pick, Sampler
from edgewise.engine.scheduler import Scheduler, StepPlan
from edgewise.engine.sequence import NO_PROMPT_OUTPUT, ActiveRequest, Phase, Sequence

logger = logging.getLogger("edgewise.engine")


def ignore_request(owner: ActiveRequest) -> None:
    """The default of a callback."""


class EngineCore:
    """All state of the engine. One thread at a time."""

    def __init__(
        self,
        decoder: DecoderRunner,
        config: EngineConfig,
        *,
        on_scheduled: OnRequest = ignore_request,
        on_release: OnRequest = ignore_request,
        on_end: OnRequest = ignore_request,
    ) -> None:
        config.check(decoder)
        self.decoder = decoder
        self.config = config
        self.kv = KvCache(
            num_blocks=decoder.num_blocks,
            block_size=decoder.block_size,
            copy_block=self._copy_block,
            enable_prefix_caching=config.enable_prefix_caching,
            fingerprint=config.cache_fingerprint,
        )
        self.scheduler = Scheduler(self.kv, config, max_outputs=decoder.max_outputs)
        self.book = RequestBook(self.scheduler, on_release, on_end)
        self._on_scheduled = on_scheduled
        self.num_steps = 0
        self._sampler = Sampler(decoder.vocab_size)
        self._builder = BatchBuilder(
            max_rows=config.max_num_batched_tokens, max_positions=config.max_model_len
        )
        self._num_preemptions = 0
        self._prefix_queries_tokens = 0
        self._prefix_hits_tokens = 0
        self._num_generated = 0  # this and the next two: of the step being worked on
        self._first_token_s: list[float] = []
        self._inter_token_s: list[float] = []

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work

    def add(self, owner: ActiveRequest) -> None:
        """Take in a checked request."""
        self.book.add(owner)
        try:
            first = self._new_sequence(owner, 0)
        except Exception as error:  # the grammar's factory is not ours
            self._fail(owner, error)
            return
        owner.max_tokens = first.max_tokens
        if owner.request.sampling.prompt_logprobs is not None:
            # No wanted output stands before these tokens.
            owner.prompt_logprobs = [None] * ((owner.request.outputs_from or 0) + 1)
        owner.sequences.append(first)
        self.scheduler.add(first)

    def plan(self) -> StepPlan:
        """Decide on the next step. It must be run before anything else changes."""
        plan = self.scheduler.schedule(time.monotonic())
        self._num_preemptions += plan.preempted
        return plan

    def run(self, plan: StepPlan) -> None:
        """Run a step. Raises what the decoder raises, other than StepFailedError: it is broken then."""
        started = time.monotonic()
        self._note_scheduled(plan, started)
        try:
            output = self.decoder.step(self._builder.build(plan.chunks))
        except StepFailedError as error:
            logger.error("a step of %d rows failed: %s", plan.num_rows, error)
            for chunk in plan.chunks:
                self._fail(chunk.seq.owner, error)
            return
        if output.cancelled:
            return  # nothing was computed; what remains is planned anew
        step_s = time.monotonic() - started
        self.num_steps += 1
        self._advance(plan, output)
        self._observe(plan, step_s)

    def cancel(self, request_id: str) -> None:
        """End a request in whatever phase it is. Unknown ids are passed over: it has ended already."""
        if (owner := self.book.active.get(request_id)) is not None:
            self.book.abort(owner, "cancelled", RequestCancelledError("the request was cancelled"))

    def finish_choice(self, request_id: str, choice: int) -> None:
        """End one choice as if it had stopped here. Ids and choices that are not running are passed over."""
        owner = self.book.active.get(request_id)
        if owner is not None and choice < len(owner.sequences):
            seq = owner.sequences[choice]
            if seq.phase is not Phase.ENDED:
                self.book.finish(seq, "stop")

    def step(self) -> bool:
        """Plan and run one step; False when there was nothing to do."""
        plan = self.plan()
        if plan.chunks:
            self.run(plan)
        return bool(plan.chunks)

    def stats(self) -> EngineStats:
        """The engine as it is between two steps."""
        pool = self.kv.pool
        return EngineStats(
            num_running=self.scheduler.num_running,
            num_waiting=len(self.scheduler.waiting),
            kv_usage=pool.num_held / pool.num_blocks,
            num_blocks=pool.num_blocks,
            num_free_blocks=pool.num_free,
            num_preemptions=self._num_preemptions,
            prefix_queries_tokens=self._prefix_queries_tokens,
            prefix_hits_tokens=self._prefix_hits_tokens,
            steps=self.num_steps,
        )

    # After the decoder.

    def _advance(self, plan: StepPlan, output: StepOutput) -> None:
        """Record computed KV, gather prompt outputs, and sample for every sequence that has nothing pending."""
        picks: list[Pick] = []
        row = hidden_row = 0
        for chunk in plan.chunks:
            seq = chunk.seq
            self.kv.advance(seq, chunk.num_rows)
            if seq.pooler is not None:
                self._take_hidden(seq, seq.pooler, output.hidden, hidden_row, chunk.num_outputs)
                hidden_row += chunk.num_outputs
                continue
            end = row + chunk.num_outputs
            complete = seq.num_pending == 0
            if (num_prompt_rows := chunk.num_outputs - complete) > 0:
                self._take_prompt_outputs(seq, output.logits[row : row + num_prompt_rows])
            if complete:
                if seq.phase is Phase.PREFILL:
                    self._complete_prefill(seq, end - 1, picks)
                else:
                    picks.append(Pick(seq, end - 1))
            row = end
        self._pick_tokens(picks, output.logits)

    def _take_hidden(
        self,
        seq: Sequence,
        pooler: Pooler,
        hidden: npt.NDArray[np.float32] | None,
        first: int,
        num_rows: int,
    ) -> None:
        """Pool the hidden states of a chunk. With the last of its prompt the request is complete."""
        if num_rows:
            assert hidden is not None, "the decoder gives hidden states where they are asked for"
            pooler.add(hidden[first : first + num_rows])
            seq.next_prompt_output = min(seq.next_prompt_output, seq.num_prompt) + num_rows
        if seq.num_pending == 0:
            self.kv.record_tail(seq)
            self._prefix_queries_tokens += seq.num_prompt
            self._prefix_hits_tokens += seq.owner.num_cached_tokens
            self.book.finish(seq, "stop", embedding=pooler.result())

    def _complete_prefill(self, seq: Sequence, row: int, picks: list[Pick]) -> None:
        """A prompt is computed: from here on every step gives a token. The first time, the other choices branch off."""
        seq.phase = Phase.DECODE
        self.kv.record_tail(seq)
        ready = [seq]
        if seq.choice == 0 and not seq.output_ids:
            self._prefix_queries_tokens += seq.num_prompt
            self._prefix_hits_tokens += seq.owner.num_cached_tokens
            ready += self._branch(seq)
        for one in ready:
            if one.phase is Phase.ENDED:  # branching failed, and the request with it
                continue
            if one.max_tokens == 0:
                self.book.finish(one, "length")
            else:
                picks.append(Pick(one, row))

    def _branch(self, seq: Sequence) -> list[Sequence]:
        """Make the other choices of a request whose prompt is computed; returns those that run at once."""
        owner = seq.owner
        running = []
        try:
            for choice in range(1, owner.request.sampling.n):
                child = self._new_sequence(owner, choice, parent=seq)
                owner.sequences.append(child)
                if self.scheduler.add_fork(seq, child):
                    running.append(child)
        except Exception as error:  # a grammar's fork is not ours
            self._fail(owner, error)
        return running

    def _pick_tokens(self, picks: list[Pick], logits: npt.NDArray[np.float32]) -> None:
        """The next token (or forced tokens) of every pick, and what follows from it."""
        at = time.monotonic()
        free: list[Pick] = []
        for pick in picks:
            forced = self._forced_tokens(pick.seq)
            if forced is None:
                free.append(pick)
            elif pick.seq.phase is not Phase.ENDED:
                self._take(pick.seq, forced, None, at)
        for pick, result in zip(free, self._sampler.sample(free, logits), strict=True):
            if pick.seq.phase is Phase.ENDED:  # its request failed with another of its choices
                continue
            if isinstance(result, Exception):
                self._fail(pick.seq.owner, result)
            else:
                self._take(pick.seq, [result.token], result.logprobs, at)

    def _forced_tokens(self, seq: Sequence) -> list[int] | None:
        """Tokens a grammar forces here, to be appended without sampling; None: sample (one forced token at a time without
        jump-forward, and where a log probability is wanted of each)."""
        if seq.constraint is None or not self.config.enable_jump_forward:
            return None
        if seq.owner.request.sampling.logprobs is not None:
            return None
        try:
            return seq.constraint.forced() or None
        except Exception as error:
            self._fail(seq.owner, error)
            return []

    def _take(
        self, seq: Sequence, tokens: list[int], logprobs: tuple[TokenLogprob, ...] | None, at: float
    ) -> None:
        """Append tokens to a sequence until one ends it, and tell its sink."""
        owner = seq.owner
        kept: list[int] = []
        reason: FinishReason | None = None
        stop_token: int | None = None
        try:
            for token in tokens:
                seq.num_generated += 1
                self._num_generated += 1
                if token in seq.stop_ids:
                    reason, stop_token = "stop", token
                    break
                seq.append(token)
                kept.append(token)
                if (reason := self._end_after(seq, token)) is not None:
                    break
        except Exception as error:  # a grammar is not ours
            self._fail(owner, error)
            return
        self._note_tokens(seq, at)
        if reason is None:
            self.book.tokens(seq, tuple(kept), logprobs)
        else:
            if logprobs is not None:
                logprobs = logprobs[: len(kept)]
            self.book.finish(seq, reason, tuple(kept), logprobs, stop_token_id=stop_token)

    def _end_after(self, seq: Sequence, token: int) -> FinishReason | None:
        """Why a sequence ends with the token just appended, if it does."""
        if seq.constraint is not None and seq.constraint.accept(token):
            return "stop"
        return "length" if len(seq.output_ids) >= seq.max_tokens else None

    def _take_prompt_outputs(self, seq: Sequence, logits: npt.NDArray[np.float32]) -> None:
        """Outputs of prompt positions from `next_prompt_output` on: each gives the log probability of the token after it."""
        owner = seq.owner
        params = owner.request.sampling
        first = seq.next_prompt_output
        following = seq.token_ids[first + 1 : first + 1 + len(logits)].tolist()
        assert params.prompt_logprobs is not None and owner.prompt_logprobs is not None
        owner.prompt_logprobs += self._sampler.logprobs(logits, following, params.prompt_logprobs)
        seq.next_prompt_output = first + len(logits)
        if seq.next_prompt_output >= seq.num_prompt - 1:
            seq.next_prompt_output = NO_PROMPT_OUTPUT

    def _fail(self, owner: ActiveRequest, error: Exception) -> None:
        if owner.request.request_id in self.book.active:
            self.book.abort(owner, "error", error)

    def _new_sequence(self, owner: ActiveRequest, choice: int, parent: Sequence | None = None) -> Sequence:
        seq = Sequence(
            owner,
            choice,
            max_model_len=self.config.max_model_len,
            block_size=self.decoder.block_size,
            parent=parent,
        )
        seq.sampler = self._sampler.new_state(seq)
        return seq

    def _copy_block(self, source: int, target: int) -> None:
        self.decoder.copy_blocks(np.array([source], np.int32), np.array([target], np.int32))

    # Bookkeeping for stats and listeners.

    def _note_scheduled(self, plan: StepPlan, at: float) -> None:
        for chunk in plan.chunks[plan.num_decode :]:
            owner = chunk.seq.owner
            if not owner.scheduled_s:
                owner.scheduled_s = at
                self._on_scheduled(owner)

    def _note_tokens(self, seq: Sequence, at: float) -> None:
        if seq.first_token_s:
            self._inter_token_s.append(at - seq.last_token_s)
        else:
            seq.first_token_s = at
            owner = seq.owner
            if not owner.first_token_s:
                owner.first_token_s = at
                self._first_token_s.append(at - owner.request.arrival_s)
        seq.last_token_s = at

    def _observe(self, plan: StepPlan, step_s: float) -> None:
        num_prefill_rows = plan.num_rows - plan.num_decode_rows
        self.scheduler.pace.observe(plan.num_decode_rows, num_prefill_rows, step_s)
        record = StepRecord(
            step_s=step_s,
            num_prefill_rows=num_prefill_rows,
            num_decode_rows=plan.num_decode_rows,
            num_generated_tokens=self._num_generated,
            num_preempted=plan.preempted,
            first_token_s=tuple(self._first_token_s),
            inter_token_s=tuple(self._inter_token_s),
        )
        self._num_generated = 0
        self._first_token_s.clear()
        self._inter_token_s.clear()
        self.book.report_step(record)
