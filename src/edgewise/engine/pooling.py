"""Pooler: the hidden states of a prompt, as they are computed chunk by chunk, become one vector."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Pooler:
    """The mean of all rows it is given; where only the last token's is wanted, that is the one row.

    Rows are summed one by one in float64, so the result does not depend on where the chunks were cut.
    """

    __slots__ = ("_count", "_sum")

    def __init__(self) -> None:
        self._sum: npt.NDArray[np.float64] | None = None
        self._count = 0

    def add(self, rows: npt.NDArray[np.float32]) -> None:
        """Take the rows f32[N, E] in, in the order of their tokens."""
        if self._sum is None:
            self._sum = np.zeros(rows.shape[1], np.float64)
        for row in rows:
            self._sum += row
        self._count += len(rows)

    def result(self) -> npt.NDArray[np.float32]:
        """f32[E]."""
        assert self._sum is not None, "a prompt has at least one token"
        return (self._sum / self._count).astype(np.float32)
