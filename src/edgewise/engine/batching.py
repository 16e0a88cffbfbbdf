"""BatchBuilder: a step's chunks as the arrays of a `Batch`. Its buffers are reused from step to step."""

from __future__ import annotations

from collections.abc import Sequence as ListOf

import numpy as np

from edgewise.decoder.batch import Batch
from edgewise.engine.scheduler import Chunk


class BatchBuilder:
    """Builds batches of at most `max_rows` rows and positions below `max_positions`."""

    def __init__(self, *, max_rows: int, max_positions: int) -> None:
        self._token_ids = np.empty(max_rows, np.int32)
        self._positions = np.empty(max_rows, np.int32)
        self._counting = np.arange(max_positions, dtype=np.int32)

    def build(self, chunks: ListOf[Chunk]) -> Batch:
        """The batch of the chunks, in order. Valid until the next call."""
        token_ids, positions = self._token_ids, self._positions
        row = 0
        row_starts, context_lens = [0], []
        output_rows: list[int] = []
        hidden_rows: list[int] = []
        tables = np.empty((len(chunks), max([chunk.seq.num_blocks for chunk in chunks])), np.int32)
        for i, chunk in enumerate(chunks):
            seq, num_rows = chunk.seq, chunk.num_rows
            start = seq.num_computed
            if num_rows == 1:  # nearly every row of nearly every step: plain indexing is several times faster
                token_ids[row] = seq.token_ids[start]
                positions[row] = start
            else:
                token_ids[row : row + num_rows] = seq.token_ids[start : start + num_rows]
                positions[row : row + num_rows] = self._counting[start : start + num_rows]
            row += num_rows
            tables[i, : seq.num_blocks] = seq.block_table[: seq.num_blocks]
            context_lens.append(start)
            row_starts.append(row)
            wanted = output_rows if seq.pooler is None else hidden_rows
            wanted.extend(range(row - chunk.num_outputs, row))
        return Batch(
            token_ids=token_ids[:row],
            positions=positions[:row],
            row_starts=np.array(row_starts, np.int32),
            context_lens=np.array(context_lens, np.int32),
            block_tables=tables,
            output_rows=np.array(output_rows, np.int32),
            hidden_rows=np.array(hidden_rows, np.int32) if hidden_rows else None,
        )
