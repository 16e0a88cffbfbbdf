"""RequestBook: the accepted requests, what their sinks hear, and how they end. Engine thread only.

Every request ends in exactly one way: all its choices `finish`, or it is `abort`ed (failed or cancelled). Either way its sequences
have let go of their blocks when its last event is sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from edgewise.core.requests import FinishReason, RequestTimings, TokenEvent, TokenLogprob
from edgewise.engine.records import EngineListener, RequestRecord, StepRecord
from edgewise.engine.scheduler import Scheduler
from edgewise.engine.sequence import ActiveRequest, Phase, Sequence

logger = logging.getLogger("edgewise.engine")

OnRequest = Callable[[ActiveRequest], None]


class RequestBook:
    """Active requests by id. `on_release` hears of each just before its last event: its id is free then, so that whoever hears
    the event may use it again at once. `on_end` hears of it after that event."""

    def __init__(self, scheduler: Scheduler, on_release: OnRequest, on_end: OnRequest) -> None:
        self.active: dict[str, ActiveRequest] = {}
        self.listeners: list[EngineListener] = []
        self._scheduler = scheduler
        self._on_release = on_release
        self._on_end = on_end

    def add(self, owner: ActiveRequest) -> None:
        """Take in a request that has no sequences yet."""
        self.active[owner.request.request_id] = owner

    def tokens(
        self, seq: Sequence, token_ids: tuple[int, ...], logprobs: tuple[TokenLogprob, ...] | None
    ) -> None:
        """Send new tokens of a choice that goes on."""
        self._emit(
            seq,
            TokenEvent(
                seq.choice,
                token_ids,
                logprobs,
                self._prompt_logprobs(seq),
                num_cached_tokens=seq.owner.num_cached_tokens,
            ),
        )

    def finish(
        self,
        seq: Sequence,
        reason: FinishReason,
        token_ids: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprob, ...] | None = None,
        *,
        stop_token_id: int | None = None,
        embedding: npt.NDArray[np.float32] | None = None,
    ) -> None:
        """End a choice with its last tokens; the request with it, when no other choice is left."""
        owner = seq.owner
        self._scheduler.remove(seq)
        owner.unfinished -= 1
        owner.finish_reasons.append(reason)
        timings = self._timings(owner, seq.first_token_s)
        event = TokenEvent(
            seq.choice,
            token_ids,
            logprobs,
            self._prompt_logprobs(seq),
            finish_reason=reason,
            stop_token_id=stop_token_id,
            num_cached_tokens=owner.num_cached_tokens,
            timings=timings,
            embedding=embedding,
        )
        last = owner.unfinished == 0
        if last:
            self._release(owner)
        if self._emit(seq, event) and last:
            self._end(owner)

    def abort(
        self,
        owner: ActiveRequest,
        reason: FinishReason,
        error: Exception,
        *,
        silent: bool = False,
        release: bool = True,
    ) -> None:
        """End a request at once with "error" or "cancelled": one event, for its first unfinished choice, unless `silent`.

        `release` False leaves its blocks where they are: after a failure of the engine itself nothing about them is sure.
        """
        unfinished = [seq for seq in owner.sequences if seq.phase is not Phase.ENDED]
        for seq in unfinished:
            if release:
                self._scheduler.remove(seq)
            seq.phase = Phase.ENDED
        owner.finish_reasons.append(reason)
        timings = self._timings(owner, owner.first_token_s)
        self._release(owner)
        if not silent:
            choice = unfinished[0].choice if unfinished else len(owner.sequences)
            event = TokenEvent(
                choice,
                finish_reason=reason,
                error=error,
                num_cached_tokens=owner.num_cached_tokens,
                timings=timings,
            )
            try:
                owner.sink(event)
            except Exception:
                logger.exception("the sink of request %s failed on its last event", owner.request.request_id)
        self._end(owner)

    def report_step(self, record: StepRecord) -> None:
        """Tell the listeners of a step."""
        for listener in self.listeners:
            try:
                listener.on_step(record)
            except Exception:
                logger.exception("a listener failed on the record of a step")

    def _emit(self, seq: Sequence, event: TokenEvent) -> bool:
        """Send an event. A sink that fails is not called again: its request is cancelled. False then."""
        try:
            seq.owner.sink(event)
        except Exception as error:
            logger.exception(
                "the sink of request %s failed; the request is cancelled", seq.owner.request.request_id
            )
            self.abort(seq.owner, "cancelled", error, silent=True)
            return False
        return True

    def _release(self, owner: ActiveRequest) -> None:
        if self.active.pop(owner.request.request_id, None) is not None:
            self._on_release(owner)

    def _end(self, owner: ActiveRequest) -> None:
        request = owner.request
        num_begun = len(owner.sequences)
        record = RequestRecord(
            request_id=request.request_id,
            finish_reason=owner.finish_reasons[-1],
            finish_reasons=tuple(owner.finish_reasons),
            num_prompt_tokens=len(request.prompt_token_ids),
            num_cached_tokens=owner.num_cached_tokens,
            choice_tokens=(
                *(seq.num_generated for seq in owner.sequences),
                *(0 for _ in range(request.sampling.n - num_begun)),
            ),
            num_preemptions=owner.num_preemptions,
            max_tokens=owner.max_tokens,
            timings=self._timings(owner, owner.first_token_s),
        )
        for listener in self.listeners:
            try:
                listener.on_finish(record)
            except Exception:
                logger.exception("a listener failed on the record of request %s", request.request_id)
        self._on_end(owner)

    def _timings(self, owner: ActiveRequest, first_token_s: float) -> RequestTimings:
        return RequestTimings(owner.request.arrival_s, owner.scheduled_s, first_token_s, time.monotonic())

    def _prompt_logprobs(self, seq: Sequence) -> tuple[TokenLogprob | None, ...] | None:
        """The prompt's log probabilities, once."""
        owner = seq.owner
        if owner.prompt_logprobs is None or seq.choice != 0:
            return None
        found = tuple(owner.prompt_logprobs)
        owner.prompt_logprobs = None
        return found
