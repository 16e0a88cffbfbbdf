"""Decoder: one model in memory, run step by step. Owns the native pool, the KV cache and the compiled program.

One thread at a time may call `step` and `copy_blocks`; `cancel_step` is for any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgewise import _native
from edgewise.decoder.batch import Batch, StepOutput
from edgewise.decoder.compile import cache_layers, check_supported, compile_program, norm_of
from edgewise.decoder.weights import Weights

if TYPE_CHECKING:
    from edgewise.build.engine_dir import EngineDir
    from edgewise.core.spec import DecoderSpec

BLOCK_SIZE = 32


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes of a decoder's memory."""

    num_blocks: int
    max_rows: int  # rows of one step (T)
    max_outputs: int  # rows of one step whose logits are wanted (R)
    threads: int
    isa: str = "auto"
    huge_pages: bool = False  # copy the weights into huge pages instead of using the mapped file
    max_model_len: int | None = None  # tokens of the longest sequence; None: the model's own window


def kv_bytes_per_block(spec: DecoderSpec) -> int:
    """Bytes of KV that one block of 32 tokens takes over all layers (float16)."""
    return sum(heads * (key + value) * BLOCK_SIZE * 2 for heads, key, value in cache_layers(spec))


class Decoder:
    """Runs a `DecoderSpec` over ragged batches. Implements `DecoderRunner`.

    Memory of the KV cache is committed as blocks are first used. Raises UnsupportedModelError or EngineDirError at construction.
    """

    def __init__(self, engine_dir: EngineDir, config: DecoderConfig) -> None:
        self.spec = engine_dir.spec
        check_supported(self.spec)
        self.block_size = BLOCK_SIZE
        self.num_blocks = config.num_blocks
        self.max_rows = config.max_rows
        self.max_outputs = config.max_outputs
        self.vocab_size = self.spec.vocab_size
        self._pool = _native.Pool(config.threads)
        self._cache = _native.KvCache(cache_layers(self.spec), config.num_blocks)
        self._program = _native.Program(
            self._pool, config.isa, config.max_rows, config.max_outputs, self._cache
        )
        weights = Weights(engine_dir, huge_pages=config.huge_pages)
        self._last_layer = compile_program(self._program, self.spec, weights, config.max_model_len)
        self._final_norm = norm_of(self.spec, weights, "final_norm", self.spec.embed_dim)

    @property
    def pool(self) -> _native.Pool:
        return self._pool

    @property
    def program(self) -> _native.Program:
        return self._program

    def step(self, batch: Batch) -> StepOutput:
        """Run one batch: rows' keys and values are written to the cache, wanted rows' logits returned.

        Raises ValueError when rows, blocks or ids are out of range (our own bug, never a client's).
        """
        if batch.parents is not None:
            raise ValueError("tree drafts (Batch.parents) are not supported")
        embeddings = None if batch.embeddings is None else (batch.embeddings.rows, batch.embeddings.values)
        finished = self._program.run(
            batch.token_ids, batch.positions, batch.row_starts, batch.context_lens, batch.block_tables,
            batch.output_rows, embeddings,
        )  # fmt: skip
        if not finished:
            return StepOutput(logits=self._program.logits(0), cancelled=True)
        logits = self._program.logits(len(batch.output_rows))
        return StepOutput(logits, hidden=None if batch.hidden_rows is None else self._hidden(batch))

    def _hidden(self, batch: Batch) -> npt.NDArray[np.float32]:
        """Hidden states after the final norm, f32[N, E], by the kernel that the head's norm is made with."""
        assert batch.hidden_rows is not None
        wanted = self._program.rows(self._last_layer, batch.num_rows)[batch.hidden_rows]
        kind, weight, bias, eps = self._final_norm
        for row in wanted:
            _native.norm(self._program.isa, kind, row, weight, bias, eps, row)
        return wanted

    def cancel_step(self) -> None:
        """Ask the step in progress to stop between two operations; its output is then void."""
        self._program.cancel()

    def copy_blocks(self, sources: npt.NDArray[np.int32], targets: npt.NDArray[np.int32]) -> None:
        self._cache.copy_blocks(sources, targets)

    def close(self) -> None:
        """Stop the native threads. Further steps raise."""
        self._pool.close()
