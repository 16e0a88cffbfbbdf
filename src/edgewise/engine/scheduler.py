"""Scheduler: which sequences run in the next step, and how many of their tokens. Knows nothing of tensors; engine thread only.

A step takes the decode rows of all running sequences first, then prefill chunks, then admits waiting sequences. Invariants:
- Running sequences are kept by rank. When blocks run out the last ranked is preempted: it loses its blocks and waits at its old
  rank, to be computed again. So the first ranked always moves on, and nothing starves.
- A sequence is admitted when its whole prompt fits beside what the running ones still need; alone it always fits.
- Prefill rows are bounded by time too (`StepPace`), more tightly while anything decodes.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from edgewise.engine.config import EngineConfig
from edgewise.engine.kv_cache import KvCache
from edgewise.engine.pace import StepPace
from edgewise.engine.prefix_tree import Match
from edgewise.engine.sequence import Phase, Sequence
from edgewise.engine.waiting import WaitingQueue


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next `num_rows` pending tokens of a sequence; the last `num_outputs` of them have wanted outputs: logits, or hidden
    states where the sequence is pooled."""

    seq: Sequence
    num_rows: int
    num_outputs: int


@dataclass(slots=True)
class StepPlan:
    """What one step runs. Its first `num_decode` chunks are decode rows."""

    chunks: list[Chunk] = field(default_factory=list)
    num_decode: int = 0
    num_rows: int = 0
    num_decode_rows: int = 0
    num_outputs: int = 0  # rows with logits
    preempted: int = 0

    def prefill_request_ids(self) -> frozenset[str]:
        """Requests whose prompts this step computes."""
        return frozenset(chunk.seq.owner.request.request_id for chunk in self.chunks[self.num_decode :])

    def add(self, seq: Sequence, num_rows: int, num_outputs: int) -> None:
        self.chunks.append(Chunk(seq, num_rows, num_outputs))
        self.num_rows += num_rows
        if seq.pooler is None:
            self.num_outputs += num_outputs


class Scheduler:
    """Owns the running list and the waiting queue."""

    def __init__(self, kv: KvCache, config: EngineConfig, *, max_outputs: int) -> None:
        self.kv = kv
        self.config = config
        self.pace = StepPace()
        self.waiting = WaitingQueue(config, self._cached_len)
        self._running: list[tuple[tuple[float, int, int], Sequence]] = []  # by rank, first first
        self._max_outputs = max_outputs

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def has_work(self) -> bool:
        return bool(self._running or len(self.waiting))

    def running(self) -> Iterator[Sequence]:
        return (seq for _, seq in self._running)

    def add(self, seq: Sequence) -> None:
        """Queue a new sequence."""
        seq.phase = Phase.WAITING
        self.waiting.add(seq)

    def add_fork(self, parent: Sequence, child: Sequence) -> bool:
        """Let `child` run on its parent's blocks. False, and it is queued, where no more sequences may run."""
        if len(self._running) >= self.config.max_num_seqs:
            self.add(child)
            return False
        self.kv.fork(parent, child)
        child.rank = (parent.rank[0], parent.rank[1], child.choice)
        child.phase = parent.phase
        insort(self._running, (child.rank, child))
        return True

    def remove(self, seq: Sequence) -> None:
        """End a sequence in any phase and let go of its blocks."""
        if seq.phase is Phase.WAITING:
            self.waiting.remove(seq)
        elif seq.phase is not Phase.ENDED:
            self._running.remove((seq.rank, seq))
            self.kv.release(seq)
        seq.phase = Phase.ENDED

    def schedule(self, now: float) -> StepPlan:
        """The next step's rows, with blocks to write them to. Empty when there is nothing to do. `now`: time.monotonic()."""
        plan = StepPlan()
        self._plan_decodes(plan)
        budget = self._prefill_budget(plan)
        claimed: set[tuple[int, bytes]] = set()
        for _, seq in list(self._running):
            if seq.phase is Phase.PREFILL:
                budget -= self._plan_prefill(plan, seq, budget, claimed)
        while budget > 0 and not plan.preempted and (admitted := self._admit(now)) is not None:
            budget -= self._plan_prefill(plan, admitted, budget, claimed)
        if not plan.chunks and self._running:
            self._force_prefill(plan, budget)
        return plan

    def _plan_decodes(self, plan: StepPlan) -> None:
        decoding = [seq for _, seq in self._running if seq.phase is Phase.DECODE]
        left = self.config.max_num_batched_tokens
        for i, seq in enumerate(decoding):
            if seq.phase is not Phase.DECODE:  # preempted for an earlier one
                continue
            # More than one token is pending after forced ones; the rows of those behind are kept free.
            num_rows = min(seq.num_pending, left - (len(decoding) - i - 1))
            while not self.kv.grow(seq, seq.num_computed + num_rows):
                if self._preempt_last(plan) is seq:
                    break
            else:
                plan.add(seq, num_rows, int(num_rows == seq.num_pending))
                plan.num_decode += 1
                plan.num_decode_rows += num_rows
                left -= num_rows

    def _prefill_budget(self, plan: StepPlan) -> int:
        """Rows that prefill may take in this step."""
        config = self.config
        budget_s = config.step_budget_s if plan.num_decode else config.lone_step_budget_s
        return min(config.max_num_batched_tokens - plan.num_rows, self.pace.prefill_rows(budget_s))

    def _plan_prefill(
        self, plan: StepPlan, seq: Sequence, budget: int, claimed: set[tuple[int, bytes]]
    ) -> int:
        """Add the next chunk of a prompt; returns its rows, 0 where it must wait for a later step."""
        self.kv.reuse(seq, self.kv.find(seq))
        num_rows, num_outputs = self._chunk(seq, budget, self._max_outputs - plan.num_outputs)
        if num_rows <= 0 or self._is_claimed(seq, num_rows, claimed):
            return 0
        if not self.kv.grow(seq, seq.num_computed + num_rows):
            return 0
        plan.add(seq, num_rows, num_outputs)
        return num_rows

    def _chunk(self, seq: Sequence, max_rows: int, max_outputs: int) -> tuple[int, int]:
        """Rows and outputs of the next chunk within both bounds."""
        before_outputs = seq.first_output - seq.num_computed  # rows without outputs come first
        if seq.pooler is not None:  # hidden states are there for every row
            max_outputs = max_rows
        num_rows = min(seq.num_pending, max_rows, before_outputs + max_outputs)
        return num_rows, max(0, num_rows - before_outputs)

    def _is_claimed(self, seq: Sequence, num_rows: int, claimed: set[tuple[int, bytes]]) -> bool:
        """Whether another sequence computes this one's next block in this very step; then waiting a step is a cache hit."""
        size = self.kv.block_size
        start = seq.num_committed * size
        if not self.config.enable_prefix_caching or seq.first_output < start + size:
            return False
        claim = (id(seq.node), seq.salt + seq.symbols(start, start + size))
        if claim in claimed:
            return True
        if seq.num_computed + num_rows >= start + size:
            claimed.add(claim)
        return False

    def _admit(self, now: float) -> Sequence | None:
        """Move the next waiting sequence to the running ones, with what the cache has of it; None: none fits now."""
        if not len(self.waiting) or len(self._running) >= self.config.max_num_seqs:
            return None
        seq = self.waiting.first(now)
        match = self.kv.find(seq)
        if self._running and not self._fits(seq, match):
            return None
        self.waiting.remove(seq)
        seq.phase = Phase.PREFILL
        insort(self._running, (seq.rank, seq))
        self.kv.reuse(seq, match)
        return seq

    def _fits(self, seq: Sequence, match: Match) -> bool:
        """Whether a whole prompt fits beside what the running prompts still need and one block for each running sequence."""
        needed = self.kv.blocks_for(seq.num_tokens + 1) - len(match.blocks) + self.kv.cost(match)
        reserved = sum(
            self.kv.blocks_for(other.num_tokens + 1) - other.num_blocks
            for _, other in self._running
            if other.phase is Phase.PREFILL
        )
        return needed + reserved + len(self._running) <= self.kv.num_free

    def _preempt_last(self, plan: StepPlan) -> Sequence:
        _, victim = self._running.pop()
        self.kv.release(victim)
        victim.owner.num_preemptions += 1
        plan.preempted += 1
        self.add(victim)
        return victim

    def _force_prefill(self, plan: StepPlan, budget: int) -> None:
        """Nothing could be planned: preempt until the first ranked prompt can move on. Alone it always can."""
        first = self._running[0][1]
        while not self._plan_prefill(plan, first, budget, set()):
            victim = self._preempt_last(plan)
            assert victim is not first, "a sequence alone in the cache must fit"

    def _cached_len(self, seq: Sequence) -> int:
        match = self.kv.find(seq)
        return len(match.blocks) * self.kv.block_size + match.partial_len
