"""Our side of every ratio: the decoder driven through the same work as the peer, step by step and with sampling.

Sampling (greedy, with its bookkeeping) is part of our decode times; the peer's are llama_decode alone.
"""

from __future__ import annotations

import time
from types import TracebackType

import numpy as np
import numpy.typing as npt

from edgewise.build import engine_dir_for
from edgewise.decoder.batch import Batch
from edgewise.decoder.decoder import BLOCK_SIZE, Decoder, DecoderConfig
from edgewise.hardware import read_hardware
from edgewise.kernels.native import layout_of
from edgewise.kernels.sampling import SampleBatch, sample
from edgewise.text.tokenizer import Tokenizer

CHUNK = 512  # rows of a prefill step, as the server's default


class EngineUnderTest:
    """One model with room for `max_tokens` tokens over all sequences. A context manager; one thread."""

    def __init__(self, model: str, threads: int, *, isa: str = "auto", max_tokens: int = 16384) -> None:
        start = time.perf_counter()
        self.engine_dir = engine_dir_for(model, layout=layout_of(isa))
        config = DecoderConfig(
            num_blocks=-(-max_tokens // BLOCK_SIZE),
            max_rows=CHUNK,
            max_outputs=64,
            threads=threads,
            isa=isa,
            huge_pages=read_hardware().huge_pages,
        )
        self.decoder = Decoder(self.engine_dir, config)
        self.tokenizer = Tokenizer.load(self.engine_dir.path)
        self.load_s = time.perf_counter() - start
        self._filled: tuple[int, int] | None = None

    def __enter__(self) -> EngineUnderTest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.decoder.close()

    def _tables(self, batch: int, length: int) -> npt.NDArray[np.int32]:
        """Disjoint blocks for `batch` sequences of `length` tokens: i32[batch, blocks]."""
        blocks = -(-length // BLOCK_SIZE)
        return np.arange(batch * blocks, dtype=np.int32).reshape(batch, blocks)

    def _token(self, position: int, sequence: int) -> int:
        return 100 + (position * 7919 + sequence * 104729) % (self.decoder.vocab_size - 200)

    def _fill(self, ids: npt.NDArray[np.int32], table: npt.NDArray[np.int32]) -> None:
        """Write one sequence's keys and values, in chunks; the last token's logits are computed, as the peer does."""
        for begin in range(0, len(ids), CHUNK):
            chunk = ids[begin : begin + CHUNK]
            wanted = [len(chunk) - 1] if begin + CHUNK >= len(ids) else []
            self.decoder.step(_one_sequence(chunk, begin, table, wanted))

    def prefill(self, tokens: int) -> float:
        """Seconds to read a prompt of `tokens` tokens."""
        self._filled = None
        ids = np.array([self._token(p, 0) for p in range(tokens)], np.int32)
        start = time.perf_counter()
        self._fill(ids, self._tables(1, tokens))
        return time.perf_counter() - start

    def decode(self, batch: int, steps: int, context: int) -> float:
        """Seconds of `steps` steps of `batch` sequences that already hold `context` tokens each."""
        tables = self._tables(batch, context + steps)
        if self._filled != (batch, context):
            for s in range(batch):
                self._fill(np.array([self._token(p, s) for p in range(context)], np.int32), tables[s : s + 1])
            self._filled = (batch, context)
        rows = np.arange(batch, dtype=np.int32)
        starts = np.arange(batch + 1, dtype=np.int32)
        greedy = SampleBatch.greedy(batch)
        begin = time.perf_counter()
        for step in range(steps):
            position = context + step
            ids = np.array([self._token(position, s) for s in range(batch)], np.int32)
            positions = np.full(batch, position, np.int32)
            out = self.decoder.step(Batch(ids, positions, starts, positions, tables, rows))
            sample(out.logits, greedy)
        return time.perf_counter() - begin

    def evaluate(self, ids: list[int]) -> npt.NDArray[np.float32]:
        """Logits f32[T, V] of every position of one text."""
        table = self._tables(1, len(ids))
        self._filled = None
        parts = []
        for begin in range(0, len(ids), self.decoder.max_outputs):
            chunk = np.asarray(ids[begin : begin + self.decoder.max_outputs], np.int32)
            out = self.decoder.step(_one_sequence(chunk, begin, table, list(range(len(chunk)))))
            parts.append(out.logits.copy())
        return np.concatenate(parts)


def _one_sequence(
    chunk: npt.NDArray[np.int32], begin: int, table: npt.NDArray[np.int32], wanted: list[int]
) -> Batch:
    """A batch of consecutive tokens of one sequence, the first at position `begin`."""
    return Batch(
        token_ids=chunk,
        positions=np.arange(begin, begin + len(chunk), dtype=np.int32),
        row_starts=np.array([0, len(chunk)], np.int32),
        context_lens=np.array([begin], np.int32),
        block_tables=table,
        output_rows=np.array(wanted, np.int32),
    )
