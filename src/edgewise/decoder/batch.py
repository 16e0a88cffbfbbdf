"""Seam A: what one decoder step is asked (`Batch`), what it answers (`StepOutput`), and who answers (`DecoderRunner`).

The engine is written against this module alone; a decoder, a remote one or a test's scripted one all fit behind it.

Invariants of a step:
- Rows of one sequence lie together and in order; row j of sequence s writes its KV to *slot* `context_lens[s] + j`, which is block
  `block_tables[s, slot // block_size]`, offset `slot % block_size`. A slot is not a position: positions may repeat or jump.
- A row attends to the slots below its own and to its own, unless `parents` narrows that (tree drafts).
- Running the same rows again writes the same KV and gives the same logits, bit for bit, in any batch (batch invariance).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edgewise.core.errors import EdgewiseError
from edgewise.core.spec import DecoderSpec

Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]


class StepFailedError(EdgewiseError):
    """A step failed but the decoder is sound: the KV of the step's own rows is lost, everything else is as it was.

    A decoder raises this, and only this, where the engine may go on with other requests; any other exception out of a
    decoder means that it can no longer be trusted, and ends the engine.
    """


@dataclass(frozen=True, slots=True)
class EmbeddingRows:
    """Rows that carry an embedding in place of a token id (media, hidden states fed back).

    rows: i32[Te], ascending row numbers whose `token_ids` entry is ignored; values: f32[Te, E].
    """

    rows: Int32Array
    values: Float32Array


@dataclass(frozen=True, slots=True)
class Batch:
    """The ragged rows of one step: T rows of S sequences, R of them with wanted outputs.

    All arrays are C-contiguous and belong to the caller, who may write to them again as soon as `step` has returned.
    """

    token_ids: Int32Array  # i32[T]
    positions: Int32Array  # i32[T]
    row_starts: (
        Int32Array  # i32[S + 1]: rows of sequence s are row_starts[s]:row_starts[s + 1]; the last entry is T
    )
    context_lens: Int32Array  # i32[S]: slots filled before this step
    block_tables: Int32Array  # i32[S, M]: entries past a sequence's last block are undefined
    output_rows: Int32Array  # i32[R], ascending: rows whose logits are wanted
    hidden_rows: Int32Array | None = (
        None  # i32[N], ascending: rows whose hidden states after the final norm are wanted
    )
    embeddings: EmbeddingRows | None = None
    parents: Int32Array | None = (
        None  # i32[T]: row within the batch that a row follows, -1: the context; None: the row before
    )

    @property
    def num_rows(self) -> int:
        return int(self.token_ids.shape[0])

    @property
    def num_seqs(self) -> int:
        return int(self.context_lens.shape[0])


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Results of one step.

    logits: f32[R, V], a writable view of the decoder's memory in the order of `output_rows`, valid until the next step.
    cancelled: the step was cut short by `cancel_step`; logits are then empty and the KV of its rows is undefined.
    hidden: f32[N, E], the caller's own, in the order of `hidden_rows`; None where none were wanted.
    """

    logits: Float32Array
    cancelled: bool = False
    hidden: Float32Array | None = None


class DecoderRunner(Protocol):
    """Runs a model over batches and owns the storage of its KV blocks. Used by one thread, except `cancel_step`."""

    @property
    def spec(self) -> DecoderSpec: ...

    @property
    def vocab_size(self) -> int:
        """V: columns of the logits; ids from 0 up to it are accepted."""
        ...

    @property
    def block_size(self) -> int:
        """Slots of one KV block."""
        ...

    @property
    def num_blocks(self) -> int: ...

    @property
    def max_rows(self) -> int:
        """Most rows (T) of one step."""
        ...

    @property
    def max_outputs(self) -> int:
        """Most output rows (R) of one step."""
        ...

    def step(self, batch: Batch) -> StepOutput:
        """Write the KV of all rows and compute the wanted logits. Releases the GIL while it computes.

        Raises StepFailedError when only this step is lost; any other exception means the decoder is broken.
        """
        ...

    def cancel_step(self) -> None:
        """Cut the running step short, or the next one when none runs; each call costs at most one step. Any thread."""
        ...

    def copy_blocks(self, sources: Int32Array, targets: Int32Array) -> None:
        """Copy whole blocks, all layers: block sources[i] to targets[i] (i32[C] each). No target is a source or repeats."""
        ...

    def close(self) -> None:
        """Release memory and threads; nothing may be called afterwards. Safe to call twice."""
        ...
