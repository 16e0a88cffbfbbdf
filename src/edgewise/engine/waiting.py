"""WaitingQueue: sequences that hold no blocks yet, in the order of a policy. Engine thread only.

fcfs and priority age at the same rate for all who wait, so a sequence's rank never changes and the queue is a sorted list. lpm
looks at what the cache holds right now, among the `LPM_WINDOW` that have waited longest: looking costs time for each of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from edgewise.engine.config import EngineConfig
from edgewise.engine.sequence import Sequence

LPM_WINDOW = 64


class WaitingQueue:
    """`first` is who should run next. `cached_len(seq)` says how many tokens the cache holds of it."""

    def __init__(self, config: EngineConfig, cached_len: Callable[[Sequence], int]) -> None:
        self._config = config
        self._cached_len = cached_len
        self._queue: list[
            tuple[tuple[float, int, int], Sequence]
        ] = []  # ranks are unique: no two sequences are compared

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, seq: Sequence) -> None:
        """Queue a sequence at its rank; a preempted one so gets back its old place."""
        seq.rank = (self._base(seq), seq.owner.order, seq.choice)
        insort(self._queue, (seq.rank, seq))

    def remove(self, seq: Sequence) -> None:
        place = bisect_left(self._queue, (seq.rank,))
        assert self._queue[place][1] is seq
        del self._queue[place]

    def first(self, now: float) -> Sequence:
        """Who runs next; the queue is not empty. `now`: seconds on time.monotonic()."""
        if self._config.scheduling_policy != "lpm" or len(self._queue) == 1:
            return self._queue[0][1]
        rate = self._config.lpm_ageing_tokens_per_s

        def score(item: tuple[tuple[float, int, int], Sequence]) -> float:
            waited = now - item[1].owner.request.arrival_s
            return self._cached_len(item[1]) + rate * waited

        return max(self._queue[:LPM_WINDOW], key=score)[1]

    def _base(self, seq: Sequence) -> float:
        """Waiting a while longer is worth a constant amount of priority, so the aged order is that of this sum."""
        request = seq.owner.request
        if self._config.scheduling_policy == "priority":
            return request.priority * self._config.priority_ageing_s + request.arrival_s
        return request.arrival_s
