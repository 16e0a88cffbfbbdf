"""StepPace: how many prefill rows fit into the time a step may take, from the times of past steps."""

from __future__ import annotations

FIRST_ROWS_PER_S = 200.0  # until a prefill was timed: a 1.5B model on two old cores
MIN_ROWS = 8  # a kernel tile: fewer rows cost nearly as much, so chunks are multiples of it
SMOOTHING = 0.3  # weight of the newest sample


class StepPace:
    """Running estimates of decode step time and prefill speed."""

    def __init__(self) -> None:
        self._rows_per_s = FIRST_ROWS_PER_S
        self._guessed = True
        self._decode_step_s = 0.0

    def prefill_rows(self, budget_s: float) -> int:
        """Prefill rows that fit into `budget_s` beside the decode rows."""
        rows = int(max(0.0, budget_s - self._decode_step_s) * self._rows_per_s)
        return max(MIN_ROWS, rows - rows % MIN_ROWS)

    def observe(self, num_decode_rows: int, num_prefill_rows: int, step_s: float) -> None:
        """Learn from one finished step."""
        if num_prefill_rows == 0:
            self._decode_step_s += SMOOTHING * (step_s - self._decode_step_s)
        elif num_prefill_rows >= MIN_ROWS:
            # Time of the decode rows is taken off, but never more than half: the estimate may be stale.
            spent_s = max(step_s - self._decode_step_s, step_s / 2) if num_decode_rows else step_s
            sample = num_prefill_rows / max(spent_s, 1e-6)
            self._rows_per_s += (1.0 if self._guessed else SMOOTHING) * (sample - self._rows_per_s)
            self._guessed = False
