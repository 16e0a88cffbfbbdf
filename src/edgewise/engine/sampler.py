"""Sampler: one native call for all tokens of a step.

Gathers what each sequence asks into the arrays of `kernels.sampling`, runs custom logits processors before, and turns the
outcome into tokens and log probabilities. A row's outcome depends on its logits, its sequence's parameters, its seed and its
place in the output only: never on what else is in the step.
"""

from __future__ import annotations

from collections.abc import Sequence as ListOf
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgewise.core.errors import EdgewiseError, InvalidRequestError
from edgewise.core.requests import TokenLogprob
from edgewise.engine.sampler_state import SamplerState
from edgewise.engine.sequence import Sequence
from edgewise.kernels.sampling import BAD_LOGITS, NO_LOGPROBS, ROW, SampleBatch, SampleChoices, sample

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Pick:
    """A sequence that wants a token, and the row of logits to take it from. Several may share a row."""

    seq: Sequence
    row: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """The token chosen, and its log probability where asked for."""

    token: int
    logprobs: tuple[TokenLogprob, ...] | None = None


class Sampler:
    """Samples for all sequences of one engine. Engine thread only."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def new_state(self, seq: Sequence) -> SamplerState:
        """The sampling state of a new sequence: choice i draws from seed + i."""
        seed = seq.owner.seed + seq.choice
        return SamplerState(seq.owner.request, seq.stop_ids, seed=seed, vocab_size=self._vocab_size)

    def sample(self, picks: list[Pick], logits: Float32Array) -> list[Sampled | Exception]:
        """The next token of each pick. `logits`: f32[R, V], edited. An exception stands for a request that failed here."""
        if not picks:
            return []
        rows = np.frombuffer(bytearray().join([pick.seq.sampler.row for pick in picks]), ROW)
        rows["counter"] = [len(pick.seq.output_ids) for pick in picks]
        own = _own_rows(picks, logits)
        if all(pick.seq.sampler.plain and pick.seq.constraint is None for pick in picks):
            return _results(sample(own, SampleBatch(rows)), rows)
        return _SpecialStep(picks, rows, own).sample()

    def logprobs(self, logits: Float32Array, tokens: list[int], num_logprobs: int) -> list[TokenLogprob]:
        """Log probabilities of given tokens, one a row of `logits`, with `num_logprobs` alternatives (-1: the vocabulary)."""
        return _logprobs_of(logits, tokens, [num_logprobs] * len(tokens))


class _SpecialStep:
    """A step in which some sequence has lists, masks, forced tokens or processors."""

    def __init__(self, picks: list[Pick], rows: npt.NDArray[np.void], logits: Float32Array) -> None:
        self._picks = picks
        self._states = [pick.seq.sampler for pick in picks]
        self._rows = rows
        self._logits = logits
        self._failed: dict[int, Exception] = {}
        self._raw: dict[int, Float32Array] = {}  # before processors, where log probabilities are wanted
        self._masks: list[npt.NDArray[np.uint32]] = []

    def sample(self) -> list[Sampled | Exception]:
        for i, (pick, state) in enumerate(zip(self._picks, self._states, strict=True)):
            try:
                if not self._is_forced(i, pick.seq):
                    self._process(i, pick.seq, state)
                    self._mask(i, pick.seq, state)
            except Exception as error:
                # The row is sampled all the same, and what comes of it is dropped.
                self._failed[i] = error
        results = _results(sample(self._logits, self._batch()), self._rows)
        self._add_raw_logprobs(results)
        for i, failure in self._failed.items():
            results[i] = failure
        return results

    def _is_forced(self, i: int, seq: Sequence) -> bool:
        """Whether a grammar leaves one token only: it is taken, whatever the logits say."""
        forced = seq.constraint.forced() if seq.constraint is not None else []
        if forced:
            self._rows["forced"][i] = forced[0]
        return bool(forced)

    def _process(self, i: int, seq: Sequence, state: SamplerState) -> None:
        if state.processors and state.num_logprobs != NO_LOGPROBS:
            self._raw[i] = self._logits[i].copy()
            self._rows["num_logprobs"][i] = NO_LOGPROBS
        for processor in state.processors:
            processor(list(seq.output_ids), self._logits[i])

    def _mask(self, i: int, seq: Sequence, state: SamplerState) -> None:
        """Join the ids a request allows with those its grammar allows."""
        mask = state.allowed
        grammar = seq.constraint.mask() if seq.constraint is not None else None
        if grammar is not None:
            mask = grammar if mask is None else grammar & mask
        if mask is not None:
            self._rows["allowed_row"][i] = len(self._masks)
            self._masks.append(mask)

    def _batch(self) -> SampleBatch:
        allowed = _stacked(self._masks)
        if all(state.plain for state in self._states):  # grammars alone: the usual special step
            return SampleBatch(self._rows, allowed=allowed)
        outputs = [pick.seq.output_ids for pick in self._picks]
        each = list(zip(self._picks, self._states, outputs, strict=True))
        bias = _ragged([s.bias_ids for s in self._states])
        return SampleBatch(
            self._rows,
            prompt=_ragged(
                [p.seq.owner.request.prompt_token_ids if s.needs_prompt else () for p, s, _ in each]
            ),
            output=_ragged([output if s.needs_output else () for _, s, output in each]),
            banned=_ragged([s.banned(output) for _, s, output in each]),
            bias=bias,
            bias_values=None if bias is None else np.concatenate([s.bias_values for s in self._states]),
            allowed=allowed,
        )

    def _add_raw_logprobs(self, results: list[Sampled | Exception]) -> None:
        """Log probabilities are those of the logits as the model gave them: processors must not show in them."""
        wanted = [i for i in self._raw if i not in self._failed and isinstance(results[i], Sampled)]
        if not wanted:
            return
        tokens = [result.token for i in wanted if isinstance(result := results[i], Sampled)]
        counts = [self._states[i].num_logprobs for i in wanted]
        found = _logprobs_of(np.stack([self._raw[i] for i in wanted]), tokens, counts)
        for i, token, logprob in zip(wanted, tokens, found, strict=True):
            results[i] = Sampled(token, (logprob,))


def _stacked(masks: list[npt.NDArray[np.uint32]]) -> npt.NDArray[np.uint32] | None:
    """u32[M, ceil(V / 32)]; a single mask stays where it is."""
    if len(masks) == 1:
        return masks[0][None]
    return np.stack(masks) if masks else None


def _own_rows(picks: list[Pick], logits: Float32Array) -> Float32Array:
    """A row of logits for each pick, in order: the decoder's own memory where it lies so already, else a copy."""
    first = picks[0].row
    if all(pick.row == first + i for i, pick in enumerate(picks)):
        return logits[first : first + len(picks)]
    return logits[[pick.row for pick in picks]]


def _ragged(
    lists: ListOf[ListOf[int] | npt.NDArray[np.int32]],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]] | None:
    """Lists as (starts i64[R + 1], ids i32[...]); None where all are empty."""
    lengths = [len(ids) for ids in lists]
    if not any(lengths):
        return None
    starts = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts, np.concatenate([np.asarray(ids, np.int32) for ids in lists])


def _logprobs_of(logits: Float32Array, tokens: list[int], counts: list[int]) -> list[TokenLogprob]:
    """`counts`: alternatives wanted of each row. Edits nothing."""
    rows = np.zeros(len(tokens), ROW)
    rows["top_p"] = rows["repetition_penalty"] = 1.0
    rows["forced"] = tokens
    rows["allowed_row"] = -1
    rows["num_logprobs"] = counts
    choices = sample(logits, SampleBatch(rows))
    return [_logprob(choices, i) for i in range(len(tokens))]


def _results(choices: SampleChoices, rows: npt.NDArray[np.void]) -> list[Sampled | Exception]:
    """What came of each row."""
    results: list[Sampled | Exception] = []
    for i, (token, wanted) in enumerate(
        zip(choices.ids.tolist(), rows["num_logprobs"].tolist(), strict=True)
    ):
        if token < 0:
            results.append(_failure(token))
        elif wanted == NO_LOGPROBS:
            results.append(Sampled(token))
        else:
            results.append(Sampled(token, (_logprob(choices, i),)))
    return results


def _failure(code: int) -> Exception:
    if code == BAD_LOGITS:
        return EdgewiseError("the model's output is not a number")
    return InvalidRequestError("no token is left to choose from: everything is banned or not allowed here")


def _logprob(choices: SampleChoices, i: int) -> TokenLogprob:
    """The log probability of row i's token, with its alternatives, best first."""
    top = slice(int(choices.top_starts[i]), int(choices.top_starts[i + 1]))
    return TokenLogprob(
        token_id=int(choices.ids[i]),
        logprob=float(choices.logprobs[i]),
        rank=int(choices.ranks[i]),
        top=tuple(zip(choices.top_ids[top].tolist(), choices.top_logprobs[top].tolist(), strict=True)),
    )
