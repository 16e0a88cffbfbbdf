"""The door to sampling: a whole step's rows of logits in, tokens and log probabilities out, in one native call.

What the fields of a row mean, and the order in which they act, is in native/sampling.h. The outcome of a row depends on its logits,
parameters, seed and counter alone.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from edgewise import _native

BAD_LOGITS = -1  # instead of an id: a logit is NaN or +inf
NOTHING_LEFT = -2  # instead of an id: every token is masked
WHOLE_VOCABULARY = -1  # num_logprobs: all of them
NO_LOGPROBS = -2  # num_logprobs: not even the chosen token's

ROW = np.dtype(
    [
        ("temperature", np.float32),  # 0: greedy, ties to the lowest id
        ("top_p", np.float32),  # 1: off
        ("min_p", np.float32),  # 0: off
        ("repetition_penalty", np.float32),  # 1: off; over prompt and output
        ("frequency_penalty", np.float32),  # over output
        ("presence_penalty", np.float32),  # over output
        ("top_k", np.int32),  # 0: off
        ("num_logprobs", np.int32),  # alternatives to report, WHOLE_VOCABULARY or NO_LOGPROBS
        ("forced", np.int32),  # >= 0: this token is taken
        ("allowed_row", np.int32),  # row of SampleBatch.allowed, -1: no mask
        ("seed", np.uint64),
        ("counter", np.uint64),  # place in the output
    ],
    align=True,
)
"""One row's parameters, as the native code reads them."""

_CHOICE = np.dtype([("id", np.int32), ("logprob", np.float32), ("rank", np.int32)], align=True)

Ragged: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]
"""A list of ids for each row: starts i64[R + 1] and all ids, one after the other."""


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """What R rows ask. `rows`: ROW[R]; ragged lists may be None where no row has any.

    allowed: u32[M, ceil(V / 32)], a bit per token; rows name theirs by `allowed_row`.
    """

    rows: npt.NDArray[np.void]
    prompt: Ragged | None = None
    output: Ragged | None = None
    banned: Ragged | None = None
    bias: Ragged | None = None
    bias_values: npt.NDArray[np.float32] | None = None
    allowed: npt.NDArray[np.uint32] | None = None

    @classmethod
    def greedy(cls, num_rows: int) -> SampleBatch:
        """The likeliest token of each row, no log probabilities."""
        rows = np.zeros(num_rows, ROW)
        rows["top_p"] = rows["repetition_penalty"] = 1.0
        rows["num_logprobs"] = NO_LOGPROBS
        rows["forced"] = rows["allowed_row"] = -1
        return cls(rows)


@dataclass(frozen=True, slots=True)
class SampleChoices:
    """ids i32[R] (BAD_LOGITS or NOTHING_LEFT where there is no token), logprobs f32[R] and ranks i32[R] where asked for.

    Row r's alternatives, best first, are top_ids and top_logprobs [top_starts[r]:top_starts[r + 1]].
    """

    ids: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]
    ranks: npt.NDArray[np.int32]
    top_starts: npt.NDArray[np.int64]
    top_ids: npt.NDArray[np.int32]
    top_logprobs: npt.NDArray[np.float32]


_local = threading.local()


def _sampler(isa: str) -> _native.Sampler:
    """This thread's sampler: it keeps scratch memory of the vocabulary's size."""
    samplers = _local.__dict__.setdefault("samplers", {})
    if isa not in samplers:
        samplers[isa] = _native.Sampler(isa)
    found: _native.Sampler = samplers[isa]
    return found


def sample(logits: npt.NDArray[np.float32], batch: SampleBatch, *, isa: str = "auto") -> SampleChoices:
    """Choose a token for every row of `logits` (f32[R, V], C-contiguous, edited in place). Releases the GIL.

    Raises ValueError for arrays that do not fit each other or parameters out of range.
    """
    num_rows, vocab = logits.shape
    rows = np.ascontiguousarray(batch.rows)
    asked = rows["num_logprobs"]
    starts = np.zeros(num_rows + 1, np.int64)
    if (asked != NO_LOGPROBS).any():
        np.cumsum([_native.sample_count(int(count), vocab) for count in asked], out=starts[1:])
    top_ids = np.empty(int(starts[-1]), np.int32)
    top_logprobs = np.empty(int(starts[-1]), np.float32)
    choices = np.empty(num_rows, _CHOICE)
    _sampler(isa).sample(
        logits, rows.view(np.uint8).reshape(num_rows, ROW.itemsize),
        batch.prompt, batch.output, batch.banned, batch.bias, batch.bias_values, batch.allowed,
        choices.view(np.uint8).reshape(num_rows, _CHOICE.itemsize), starts, top_ids, top_logprobs,
    )  # fmt: skip
    return SampleChoices(choices["id"], choices["logprob"], choices["rank"], starts, top_ids, top_logprobs)
