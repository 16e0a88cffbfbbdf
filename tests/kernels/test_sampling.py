"""Sampling through the Python door: against the NumPy definition, in distribution, and at its ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import _native
from edgewise.kernels import reference_sampling as reference
from edgewise.kernels.native import available_isas
from edgewise.kernels.sampling import (
    BAD_LOGITS,
    NO_LOGPROBS,
    NOTHING_LEFT,
    ROW,
    WHOLE_VOCABULARY,
    Ragged,
    SampleBatch,
    SampleChoices,
    sample,
)
from tests.support.examples import examples

F32 = npt.NDArray[np.float32]
Lists = reference.Lists

TOLERANCE = 1e-5  # of a cumulated probability: float32 weights of up to a few thousand tokens


def rows_of(count: int, **fields: Any) -> npt.NDArray[np.void]:
    rows = SampleBatch.greedy(count).rows
    for name, value in fields.items():
        rows[name] = value
    return rows


def ragged(lists: list[tuple[int, ...]]) -> Ragged:
    starts = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    return starts, np.array([i for one in lists for i in one], np.int32)


def pack_bits(allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    padded = np.zeros(-(-len(allowed) // 32) * 32, bool)
    padded[: len(allowed)] = allowed
    return np.packbits(padded, bitorder="little").view(np.uint32)


def batch_of(rows: npt.NDArray[np.void], lists: list[Lists]) -> SampleBatch:
    rows = rows.copy()
    masks = [pack_bits(one.allowed) for one in lists if one.allowed is not None]
    rows["allowed_row"] = -1
    rows["allowed_row"][[one.allowed is not None for one in lists]] = np.arange(len(masks))
    return SampleBatch(
        rows,
        prompt=ragged([one.prompt for one in lists]),
        output=ragged([one.output for one in lists]),
        banned=ragged([one.banned for one in lists]),
        bias=ragged([tuple(i for i, _ in one.bias) for one in lists]),
        bias_values=np.array([value for one in lists for _, value in one.bias], np.float32),
        allowed=np.stack(masks) if masks else None,
    )


def is_plausible(token: int, x: F32, row: np.void) -> bool:
    """Whether `token` is what the definition draws, or its neighbour across a border closer than TOLERANCE."""
    u = reference.uniform(int(row["seed"]), int(row["counter"]))
    for shift in (0.0, -TOLERANCE, TOLERANCE):
        changed = row.copy()
        if 0 < row["top_p"] < 1:
            changed["top_p"] = np.clip(row["top_p"] + shift, 1e-6, 1 - 1e-7)
        if row["min_p"] > 0:
            changed["min_p"] = row["min_p"] * (1 + shift)
        candidates = reference.distribution(x, changed)
        edges = np.cumsum(candidates.probabilities)
        place = np.flatnonzero(candidates.ids == token)
        if len(place):
            low, high = edges[place[0]] - candidates.probabilities[place[0]], edges[place[0]]
            if low - TOLERANCE <= u <= high + TOLERANCE:
                return True
    return False


ids = st.integers(-2, 60)
lists_strategy = st.builds(
    Lists,
    prompt=st.lists(ids, max_size=6).map(tuple),
    output=st.lists(ids, max_size=6).map(tuple),
    banned=st.lists(ids, max_size=3).map(tuple),
    bias=st.lists(st.tuples(ids, st.sampled_from([-100.0, -1.0, 2.5])), max_size=3).map(tuple),
)
row_strategy = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.05, 0.7, 1.0, 2.5]),
        "top_p": st.sampled_from([1.0, 1.0, 0.9, 0.5, 0.01]),
        "min_p": st.sampled_from([0.0, 0.0, 0.05, 1.0]),
        "top_k": st.sampled_from([0, 0, 1, 2, 40, 300, 5000]),
        "repetition_penalty": st.sampled_from([1.0, 1.3, 0.8]),
        "frequency_penalty": st.sampled_from([0.0, 0.5, -1.0]),
        "presence_penalty": st.sampled_from([0.0, 0.7]),
        "num_logprobs": st.sampled_from([NO_LOGPROBS, WHOLE_VOCABULARY, 0, 1, 5]),
        "seed": st.integers(0, 2**64 - 1),
        "counter": st.integers(0, 2**40),
    }
)


def random_logits(vocab: int, seed: int, ties: bool) -> F32:
    x = np.random.default_rng(seed).normal(scale=3, size=vocab).astype(np.float32)
    return np.round(x) if ties else x


@pytest.mark.parametrize("isa", available_isas())
@given(
    fields=st.lists(row_strategy, min_size=1, max_size=4),
    lists=st.lists(lists_strategy, min_size=4, max_size=4),
    vocab=st.sampled_from([1, 2, 7, 8, 33, 300, 5000]),
    masked=st.booleans(),
    ties=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=examples(80), deadline=None)
def test_rows_follow_the_definition(
    isa: str,
    fields: list[dict[str, Any]],
    lists: list[Lists],
    vocab: int,
    masked: bool,
    ties: bool,
    seed: int,
) -> None:
    count = len(fields)
    rows = rows_of(count, **{name: [f[name] for f in fields] for name in fields[0]})
    logits = np.stack([random_logits(vocab, seed + r, ties) for r in range(count)])
    lists = lists[:count]
    if masked:
        allowed = np.random.default_rng(seed).random(vocab) < 0.5
        lists = [replace(lists[0], allowed=allowed), *lists[1:]]
    work = logits.copy()
    choices = sample(work, batch_of(rows, lists), isa=isa)
    for r in range(count):
        x = reference.edited(logits[r], rows[r], lists[r])
        np.testing.assert_array_equal(work[r], x)
        token = int(choices.ids[r])
        if x.max() == -np.inf:
            assert token == NOTHING_LEFT
            continue
        if rows[r]["temperature"] == 0:
            assert token == int(np.argmax(x))
        else:
            assert is_plausible(token, x, rows[r])
        check_logprobs(choices, r, logits[r], int(rows[r]["num_logprobs"]))


def check_logprobs(choices: SampleChoices, r: int, logits: F32, asked: int) -> None:
    """Log probabilities and ranks are those of the logits before any edit."""
    top = slice(choices.top_starts[r], choices.top_starts[r + 1])
    top_ids, top_logprobs = choices.top_ids[top], choices.top_logprobs[top]
    want = reference.log_softmax(logits)
    expected = {NO_LOGPROBS: 0, WHOLE_VOCABULARY: len(logits)}.get(asked, min(asked, len(logits)))
    assert len(top_ids) == expected
    if asked == NO_LOGPROBS:
        return
    token = int(choices.ids[r])
    assert choices.ranks[r] == reference.rank(logits, token)
    assert choices.logprobs[r] == pytest.approx(want[token], abs=1e-5)
    np.testing.assert_array_equal(top_ids, np.lexsort((np.arange(len(logits)), -logits))[: len(top_ids)])
    np.testing.assert_allclose(top_logprobs, want[top_ids], atol=1e-5)


@given(seed=st.integers(0, 2**64 - 1), counter=st.integers(0, 2**64 - 1))
def test_uniform_equals_the_definition(seed: int, counter: int) -> None:
    assert _native.sample_uniform(seed, counter) == reference.uniform(seed, counter)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [{}, {"top_k": 6}, {"top_p": 0.8}, {"min_p": 0.1}, {"top_k": 8, "top_p": 0.9, "min_p": 0.02}],
    ids=str,
)
def test_frequencies_match_the_distribution(fields: dict[str, float]) -> None:
    """Chi-square of 40,000 draws at fixed seeds, far below the 1e-6 quantile for up to 19 degrees of freedom (67)."""
    draws = 40_000
    x = np.random.default_rng(1).normal(scale=1.5, size=20).astype(np.float32)
    rows = rows_of(draws, temperature=1.2, counter=np.arange(draws), seed=7, **fields)
    tokens = sample(np.tile(x, (draws, 1)), SampleBatch(rows)).ids
    candidates = reference.distribution(x, rows[0])
    expected = candidates.probabilities * draws
    counts = np.bincount(tokens, minlength=len(x))
    assert counts.sum() == counts[candidates.ids].sum(), "a token that the filters remove was drawn"
    assert (((counts[candidates.ids] - expected) ** 2) / expected).sum() < 67


def test_seeds_and_counters_draw_independently() -> None:
    draws = 2000
    x = np.zeros((draws, 2), np.float32)
    by_counter = sample(x.copy(), SampleBatch(rows_of(draws, temperature=1.0, counter=np.arange(draws)))).ids
    by_seed = sample(x.copy(), SampleBatch(rows_of(draws, temperature=1.0, seed=np.arange(draws)))).ids
    for tokens in (by_counter, by_seed):
        assert abs(tokens.mean() - 0.5) < 0.06
        assert abs(np.mean(tokens[1:] == tokens[:-1]) - 0.5) < 0.06


@pytest.mark.parametrize("fields", [{}, {"top_k": 50}, {"top_p": 0.9}, {"top_k": 1000}], ids=str)
def test_a_row_does_not_depend_on_its_batch(fields: dict[str, float]) -> None:
    logits = np.random.default_rng(3).normal(scale=3, size=(6, 4099)).astype(np.float32)
    rows = rows_of(6, temperature=0.8, seed=np.arange(6), num_logprobs=3, **fields)
    together = sample(logits.copy(), SampleBatch(rows))
    alone = [sample(logits[r : r + 1].copy(), SampleBatch(rows[r : r + 1])) for r in range(6)]
    assert together.ids.tolist() == [int(one.ids[0]) for one in alone]
    assert together.logprobs.tolist() == [float(one.logprobs[0]) for one in alone]


def test_rows_without_a_token_say_why() -> None:
    logits = np.zeros((4, 5), np.float32)
    logits[0, 3], logits[1, 2], logits[2] = np.nan, np.inf, -np.inf
    choices = sample(logits, SampleBatch(rows_of(4, temperature=1.0, num_logprobs=2)))
    assert choices.ids[:3].tolist() == [BAD_LOGITS, BAD_LOGITS, NOTHING_LEFT]
    assert choices.ids[3] >= 0


def test_forced_tokens_are_taken_unedited() -> None:
    logits = np.arange(8, dtype=np.float32)[None]
    rows = rows_of(1, forced=2, num_logprobs=0, repetition_penalty=2.0)
    choices = sample(logits, replace(SampleBatch(rows), banned=ragged([(2,)])))
    assert (choices.ids[0], choices.ranks[0]) == (2, 6)
    assert logits[0].tolist() == list(range(8))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": np.nan}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"min_p": 1.5}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"top_k": -3}, "top_k"),
        ({"forced": 9}, "forced"),
        ({"allowed_row": 0}, "allowed"),
    ],
)
def test_values_out_of_range_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample(np.zeros((1, 9), np.float32), SampleBatch(rows_of(1, **fields)))


def test_arrays_that_do_not_fit_are_refused() -> None:
    logits = np.zeros((2, 9), np.float32)
    starts, ids = ragged([(1,), (2,)])
    good = SampleBatch(rows_of(2))
    for bad in (
        replace(good, banned=(starts[:-1], ids)),
        replace(good, banned=(starts + 1, ids)),
        replace(good, banned=(starts[::-1].copy(), ids)),
        replace(good, bias=(starts, ids), bias_values=np.zeros(1, np.float32)),
        replace(good, bias=(starts, ids)),
        replace(good, rows=rows_of(3)),
    ):
        with pytest.raises(ValueError, match=r"sample|reshape"):
            sample(logits, bad)


def test_the_record_is_the_native_one() -> None:
    """A field at another offset would act as another field."""
    assert ROW.itemsize == 56
    assert [ROW.fields[name][1] for name in ROW.names] == [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 48]
