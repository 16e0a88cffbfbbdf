"""ScriptedModel: a decoder without a model. Its logits are a pure function of the token prefix, read back from its own KV slots.

Every row stores its token id and position where the block table says, and every wanted output hashes the ids it finds in slots
0..its own. A wrong block table, a missed copy-on-write or a block freed too early therefore shows as wrong tokens (or as an
AssertionError naming the slot), just as it would with a real model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from edgewise.core.spec import DecoderSpec
from edgewise.decoder.batch import Batch, StepOutput

Script = Callable[[tuple[int, ...]], int | None]
"""The token that must follow a prefix, or None for the hash's own choice."""

HIDDEN_DIM = 8
_EMPTY = -1  # a slot nothing was written to
_LOST = -2  # a slot of a cancelled or failed step


def scripted_outputs(outputs: Mapping[tuple[int, ...], Sequence[int]]) -> Script:
    """A script that answers given prompts with given outputs; past their end, and for other prompts, it has no opinion."""

    def script(prefix: tuple[int, ...]) -> int | None:
        for prompt, answer in outputs.items():
            done = len(prefix) - len(prompt)
            if (
                0 <= done < len(answer)
                and prefix[: len(prompt)] == prompt
                and prefix[len(prompt) :] == tuple(answer[:done])
            ):
                return answer[done]
        return None

    return script


def prefix_logits(prefix: npt.NDArray[np.int32], vocab_size: int) -> npt.NDArray[np.float32]:
    """f32[V] in [-4, 4), from a 64-bit hash of the whole prefix (splitmix64 finaliser, one lane a token id)."""
    state = np.uint64(0x243F6A8885A308D3)
    mult = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        weights = np.arange(1, len(prefix) + 1, dtype=np.uint64) * mult
        mixed = _mix(prefix.astype(np.uint64) * np.uint64(0xD1342543DE82EF95) + weights)
        state += np.bitwise_xor.reduce(mixed) + np.uint64(len(prefix))
        lanes = _mix(state + np.arange(1, vocab_size + 1, dtype=np.uint64) * mult)
    return ((lanes >> np.uint64(40)).astype(np.float32) / np.float32(1 << 21) - np.float32(4.0)).astype(
        np.float32
    )


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass
class ScriptedModel:
    """A `DecoderRunner` for tests. Deterministic; any thread may call `cancel_step`.

    script: forces the most likely token (logit +20) for the prefixes it knows.
    step_delay_s, row_delay_s: time a step takes, fixed and per row; `cancel_step` cuts it short.
    failures: step number (from 0) -> exception raised by that step, its rows' KV lost.
    """

    vocab_size: int = 32
    block_size: int = 4
    num_blocks: int = 64
    max_rows: int = 256
    max_outputs: int = 32
    max_positions: int = 100_000
    script: Script | None = None
    step_delay_s: float = 0.0
    row_delay_s: float = 0.0
    failures: dict[int, Exception] = field(default_factory=dict)
    check_positions: bool = True

    def __post_init__(self) -> None:
        self.spec = DecoderSpec(
            architecture="scripted", vocab_size=self.vocab_size, embed_dim=HIDDEN_DIM, max_positions=self.max_positions,
            layers=(), norm="rms", norm_eps=1e-5, tied_head=True,
        )  # fmt: skip
        self.num_steps = 0
        self.num_rows = 0
        self.num_cancelled_steps = 0
        self.step_time_s = 0.0
        self.row_counts: list[int] = []  # rows of every step, for tests of chunking
        self.closed = False
        self._ids = np.full((self.num_blocks, self.block_size), _EMPTY, np.int32)
        self._positions = np.full((self.num_blocks, self.block_size), _EMPTY, np.int32)
        self._logits = np.zeros((self.max_outputs, self.vocab_size), np.float32)
        self._cancel = threading.Event()

    def step(self, batch: Batch) -> StepOutput:
        began = time.perf_counter()
        self._check(batch)
        number = self.num_steps
        self.num_steps += 1
        self.num_rows += batch.num_rows
        self.row_counts.append(batch.num_rows)
        delay = self.step_delay_s + self.row_delay_s * batch.num_rows
        cancelled = self._cancel.wait(delay) if delay else self._cancel.is_set()
        self._cancel.clear()
        lost = cancelled or number in self.failures
        self._write(batch, lost=lost)
        if number in self.failures:
            raise self.failures[number]
        if cancelled:
            self.num_cancelled_steps += 1
            return StepOutput(self._logits[:0], cancelled=True)
        for i, row in enumerate(batch.output_rows.tolist()):
            self._output(batch, row, self._logits[i])
        hidden = None
        if batch.hidden_rows is not None:
            assert np.all(np.diff(batch.hidden_rows) > 0), "hidden rows ascend"
            prefixes = (self._prefix(batch, row) for row in batch.hidden_rows.tolist())
            hidden = np.stack([prefix_logits(prefix, HIDDEN_DIM) for prefix in prefixes])
        self.step_time_s += time.perf_counter() - began
        return StepOutput(self._logits[: len(batch.output_rows)], hidden=hidden)

    def cancel_step(self) -> None:
        self._cancel.set()

    def copy_blocks(self, sources: npt.NDArray[np.int32], targets: npt.NDArray[np.int32]) -> None:
        assert len(set(targets.tolist())) == len(targets), "a block is copied to twice"
        assert not set(sources.tolist()) & set(targets.tolist()), "a block is both source and target"
        self._ids[targets] = self._ids[sources]
        self._positions[targets] = self._positions[sources]

    def close(self) -> None:
        self.closed = True

    def _check(self, batch: Batch) -> None:
        assert not self.closed, "step after close"
        assert 0 < batch.num_rows <= self.max_rows
        assert len(batch.output_rows) <= self.max_outputs
        assert np.all(np.diff(batch.output_rows) > 0), "output rows ascend"
        assert np.all(np.diff(batch.row_starts) > 0), "every sequence has rows"
        assert batch.row_starts[0] == 0 and batch.row_starts[-1] == batch.num_rows
        assert batch.token_ids.min() >= 0 and batch.token_ids.max() < self.vocab_size
        for array in (
            batch.token_ids,
            batch.positions,
            batch.row_starts,
            batch.context_lens,
            batch.output_rows,
        ):
            assert array.dtype == np.int32 and array.flags.c_contiguous
        assert batch.block_tables.dtype == np.int32 and batch.block_tables.flags.c_contiguous

    def _write(self, batch: Batch, *, lost: bool) -> None:
        seen: set[int] = set()
        for s in range(batch.num_seqs):
            first, last = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
            slots = np.arange(last - first) + int(batch.context_lens[s])
            blocks = batch.block_tables[s, slots // self.block_size]
            places = (blocks.astype(np.int64) * self.block_size + slots % self.block_size).tolist()
            assert not seen.intersection(places), "two rows of a step write the same slot"
            seen.update(places)
            self._ids[blocks, slots % self.block_size] = _LOST if lost else batch.token_ids[first:last]
            self._positions[blocks, slots % self.block_size] = batch.positions[first:last]

    def _prefix(self, batch: Batch, row: int) -> npt.NDArray[np.int32]:
        """The token ids found in a row's slots and those below."""
        s = int(np.searchsorted(batch.row_starts, row, side="right")) - 1
        length = int(batch.context_lens[s]) + row - int(batch.row_starts[s]) + 1
        slots = np.arange(length)
        blocks = batch.block_tables[s, slots // self.block_size]
        ids = self._ids[blocks, slots % self.block_size]
        if self.check_positions:
            positions = self._positions[blocks, slots % self.block_size]
            wrong = np.flatnonzero((positions != slots) | (ids < 0))
            assert not len(wrong), (
                f"slot {wrong[0]} of a sequence of {length} holds id {ids[wrong[0]]} of position {positions[wrong[0]]}"
            )
        return ids

    def _output(self, batch: Batch, row: int, logits: npt.NDArray[np.float32]) -> None:
        ids = self._prefix(batch, row)
        logits[:] = prefix_logits(ids, self.vocab_size)
        if self.script is not None and (token := self.script(tuple(ids.tolist()))) is not None:
            logits[token] += 20.0


def greedy_continuation(
    prompt: Sequence[int], length: int, *, vocab_size: int = 32, script: Script | None = None
) -> list[int]:
    """What a greedy run over `ScriptedModel` must give, computed without it."""
    prefix = list(prompt)
    for _ in range(length):
        logits = prefix_logits(np.array(prefix, np.int32), vocab_size)
        if script is not None and (token := script(tuple(prefix))) is not None:
            logits[token] += 20.0
        prefix.append(int(np.argmax(logits)))
    return prefix[len(prompt) :]
