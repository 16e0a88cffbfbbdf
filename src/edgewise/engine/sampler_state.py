"""SamplerState: what one sequence asks of the sampler, prepared once and kept up to date token by token."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgewise.core.requests import GenerationRequest
from edgewise.core.sampling import LogitsProcessor
from edgewise.kernels.sampling import NO_LOGPROBS, ROW

SEED_MASK = (1 << 64) - 1
FLOAT = np.finfo(np.float32)
Int32Array = npt.NDArray[np.int32]


class SamplerState:
    """Constants of a sequence's sampling, and the rules that depend on its output so far."""

    __slots__ = (
        "_bad_words",
        "_banned_always",
        "_banned_early",
        "_min_tokens",
        "allowed",
        "bias_ids",
        "bias_values",
        "needs_output",
        "needs_prompt",
        "num_logprobs",
        "plain",
        "processors",
        "row",
    )  # fmt: skip

    def __init__(
        self, request: GenerationRequest, stop_ids: frozenset[int], *, seed: int, vocab_size: int
    ) -> None:
        """`seed`: of this choice, any integer; `stop_ids`: what may not come before `min_tokens`."""
        params = request.sampling
        self.num_logprobs = NO_LOGPROBS if params.logprobs is None else params.logprobs
        self.row: bytes = _row(request, seed, self.num_logprobs, vocab_size)
        self.needs_prompt = params.repetition_penalty != 1.0
        self.needs_output = (
            self.needs_prompt or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0
        )
        self.bias_ids = np.array(list(params.logit_bias), np.int32)
        self.bias_values = np.array(list(params.logit_bias.values()), np.float32)
        self.allowed = (
            None if params.allowed_token_ids is None else mask_of(params.allowed_token_ids, vocab_size)
        )
        self.processors: tuple[LogitsProcessor, ...] = params.logits_processors
        self._banned_always = np.array([word[0] for word in request.bad_word_ids if len(word) == 1], np.int32)
        self._banned_early = np.concatenate([self._banned_always, np.array(sorted(stop_ids), np.int32)])
        self._bad_words = _by_border(request.bad_word_ids)
        self._min_tokens = params.min_tokens
        # A plain sequence needs its row and nothing else: the fast path of every step.
        self.plain = not (
            self.needs_output
            or len(self.bias_ids)
            or self.allowed is not None
            or self.processors
            or request.bad_word_ids
            or self._min_tokens
        )

    def banned(self, output_ids: list[int]) -> Int32Array:
        """i32[...]: ids that may not come next after this output."""
        always = self._banned_early if len(output_ids) < self._min_tokens else self._banned_always
        words = self._bad_words.get(output_ids[-1], ()) if output_ids else ()
        ends = [last for beginning, last in words if output_ids[-len(beginning) :] == beginning]
        return np.concatenate([always, np.array(ends, np.int32)]) if ends else always


def _by_border(words: tuple[tuple[int, ...], ...]) -> dict[int, list[tuple[list[int], int]]]:
    """The words of several tokens as (all but the last, the last), found by the token before the last: most steps look at none."""
    found: dict[int, list[tuple[list[int], int]]] = {}
    for word in words:
        if len(word) > 1:
            found.setdefault(word[-2], []).append((list(word[:-1]), word[-1]))
    return found


def mask_of(ids: tuple[int, ...], vocab_size: int) -> npt.NDArray[np.uint32]:
    """u32[ceil(V / 32)]: bit i % 32 of word i // 32 is set for each id."""
    bits = np.zeros(-(-vocab_size // 32) * 32, np.uint8)
    bits[list(ids)] = 1
    return np.packbits(bits, bitorder="little").view(np.uint32)


def _row(request: GenerationRequest, seed: int, num_logprobs: int, vocab_size: int) -> bytes:
    """A record of `ROW` without its counter."""
    params = request.sampling
    row = np.zeros(1, ROW)
    row["temperature"] = params.temperature
    row["top_p"] = max(params.top_p, FLOAT.tiny)  # what rounds to 0 in float32 means "the best one"
    row["top_k"] = min(params.top_k, vocab_size)
    row["min_p"] = params.min_p
    row["repetition_penalty"] = params.repetition_penalty
    row["frequency_penalty"] = params.frequency_penalty
    row["presence_penalty"] = params.presence_penalty
    row["seed"] = seed & SEED_MASK
    row["forced"] = -1
    row["allowed_row"] = -1
    row["num_logprobs"] = num_logprobs
    return row.tobytes()
