"""What a request may ask of its tokens: stops, bounds, biases, processors, seeds, log probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from edgewise.core.errors import InvalidRequestError
from tests.engine.running import Runner, make_request
from tests.support.scripted_model import ScriptedModel, greedy_continuation, prefix_logits, scripted_outputs

PROMPT = (3, 1, 4, 1, 5)
VOCAB = 32


def log_softmax(prefix: Sequence[int]) -> npt.NDArray[np.float64]:
    x = prefix_logits(np.array(prefix, np.int32), VOCAB).astype(np.float64)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def test_greedy_takes_the_most_likely_token_each_time() -> None:
    assert Runner().generate(PROMPT, max_tokens=20).tokens() == greedy_continuation(PROMPT, 20)


@pytest.mark.parametrize("option", ["eos_token_ids", "stop_token_ids"])
def test_a_stop_token_ends_the_output_and_is_not_part_of_it(option) -> None:
    text = greedy_continuation(PROMPT, 10)
    stop = text[4]
    found = Runner().generate(PROMPT, **{option: frozenset({stop}) if option.startswith("eos") else (stop,)})
    assert found.tokens() == text[: text.index(stop)]
    assert (found.finishes[0].finish_reason, found.finishes[0].stop_token_id) == ("stop", stop)


def test_ignore_eos_passes_over_the_model_s_stops_but_not_the_request_s() -> None:
    text = greedy_continuation(PROMPT, 10)
    assert len(set(text[:4])) == 4, "the prompt must give distinct tokens for this test to mean anything"
    found = Runner().generate(
        PROMPT, eos_token_ids=frozenset({text[1]}), stop_token_ids=(text[3],), ignore_eos=True
    )
    assert found.tokens() == text[:3]


def test_min_tokens_keeps_stops_from_being_chosen() -> None:
    text = greedy_continuation(PROMPT, 1)
    found = Runner().generate(PROMPT, eos_token_ids=frozenset({text[0]}), min_tokens=6, max_tokens=30)
    assert len(found.tokens()) >= 6 and text[0] not in found.tokens()


@pytest.mark.parametrize(("max_tokens", "expected"), [(3, 3), (None, 59), (1000, 59), (0, 0)])
def test_max_tokens_is_clamped_to_the_window(max_tokens, expected) -> None:
    found = Runner(max_model_len=64).generate(PROMPT, max_tokens=max_tokens)
    assert (len(found.tokens()), found.reason) == (expected, "length")


def test_allowed_ids_banned_words_and_bias() -> None:
    runner = Runner()
    allowed = runner.generate(PROMPT, max_tokens=30, allowed_token_ids=(2, 9)).tokens()
    assert set(allowed) == {2, 9}
    assert runner.generate(PROMPT, max_tokens=5, logit_bias={11: 100}).tokens() == [11] * 5
    text = greedy_continuation(PROMPT, 3)
    single = runner.generate(PROMPT, max_tokens=30, bad_word_ids=((text[0],),)).tokens()
    assert text[0] not in single
    pair = runner.generate(PROMPT, max_tokens=3, bad_word_ids=((text[0], text[1]),)).tokens()
    assert pair[0] == text[0] and pair[1] != text[1]


def test_words_that_share_a_border_are_banned_each() -> None:
    text = greedy_continuation(PROMPT, 4)
    words = (tuple(text[:3]), (99 % VOCAB, *text[1:3]), (text[1], text[0]))
    found = Runner().generate(PROMPT, max_tokens=3, bad_word_ids=words).tokens()
    assert found[:2] == text[:2] and found[2] not in (text[2], text[0])


def test_nothing_left_to_choose_fails_the_request_alone() -> None:
    runner = Runner()
    hopeless, other = runner.run(
        make_request(PROMPT, allowed_token_ids=(4,), bad_word_ids=((4,),)), make_request(PROMPT, max_tokens=4)
    )
    assert isinstance(hopeless.error, InvalidRequestError)
    assert other.tokens() == greedy_continuation(PROMPT, 4)


def test_not_a_number_fails_the_request_alone() -> None:
    def poison(ids: Sequence[int], logits: npt.NDArray[np.float32]) -> None:
        logits[3] = np.nan

    poisoned, other = Runner().run(
        make_request(PROMPT, logits_processors=(poison,)), make_request(PROMPT, max_tokens=4)
    )
    assert poisoned.reason == "error"
    assert other.tokens() == greedy_continuation(PROMPT, 4)


def test_processors_see_the_output_so_far_once_a_token_and_may_edit_the_logits() -> None:
    seen: list[list[int]] = []

    def force(ids: Sequence[int], logits: npt.NDArray[np.float32]) -> object:
        assert logits.shape == (VOCAB,) and logits.dtype == np.float32
        seen.append(list(ids))
        logits[len(ids)] = 50.0
        return "ignored"

    found = Runner().generate(PROMPT, max_tokens=4, logits_processors=(force,), logprobs=1)
    assert found.tokens() == [0, 1, 2, 3]
    assert seen == [[], [0], [0, 1], [0, 1, 2]]
    for i, entry in enumerate(found.logprobs()):
        expected = log_softmax([*PROMPT, *range(i)])
        assert entry.logprob == pytest.approx(expected[i], abs=1e-5), (
            "log probabilities are of the model's own logits"
        )
        assert entry.top[0][0] == int(expected.argmax())


def test_a_failing_processor_fails_its_request_only() -> None:
    def fail(ids: Sequence[int], logits: npt.NDArray[np.float32]) -> None:
        if len(ids) == 2:
            raise ZeroDivisionError("mine")

    runner = Runner()
    bad, good = runner.run(
        make_request(PROMPT, logits_processors=(fail,), n=2, max_tokens=9), make_request(PROMPT, max_tokens=6)
    )
    assert isinstance(bad.error, ZeroDivisionError) and len(bad.tokens()) == 2
    assert good.tokens() == greedy_continuation(PROMPT, 6)
    runner.assert_nothing_leaks()


def test_when_one_choice_fails_the_others_of_that_step_say_nothing_more() -> None:
    calls = 0

    def fail(ids: Sequence[int], logits: npt.NDArray[np.float32]) -> None:
        nonlocal calls
        calls += 1
        if calls == 7:  # the first choice's third token; the other two choices get theirs in the same step
            raise ZeroDivisionError("mine")

    found = Runner().generate(PROMPT, logits_processors=(fail,), n=3, max_tokens=9)
    assert isinstance(found.error, ZeroDivisionError) and calls == 9
    assert [len(found.tokens(choice)) for choice in range(3)] == [2, 2, 2]


def test_log_probabilities_are_of_the_unedited_logits() -> None:
    found = Runner().generate(PROMPT, max_tokens=6, logprobs=3, logit_bias={9: 30}, temperature=0.5, seed=1)
    for i, entry in enumerate(found.logprobs()):
        expected = log_softmax([*PROMPT, *found.tokens()[:i]])
        order = np.argsort(-expected, kind="stable")
        assert entry.token_id == found.tokens()[i]
        assert entry.logprob == pytest.approx(expected[entry.token_id], abs=1e-5)
        assert order[entry.rank - 1] == entry.token_id
        assert [token for token, _ in entry.top] == order[:3].tolist()
        assert [value for _, value in entry.top] == pytest.approx(expected[order[:3]].tolist(), abs=1e-5)


@pytest.mark.parametrize("outputs_from", [None, 0, 7, 28])
@pytest.mark.parametrize("max_num_batched_tokens", [4, 64])
def test_prompt_log_probabilities(outputs_from, max_num_batched_tokens) -> None:
    """In chunks or whole, and never shortened by a cached prefix."""
    prompt = [(7 * i) % 11 for i in range(29)]
    runner = Runner(ScriptedModel(max_outputs=8), max_num_batched_tokens=max_num_batched_tokens)
    runner.generate(prompt, max_tokens=1)
    found = runner.generate(prompt, max_tokens=2, prompt_logprobs=2, outputs_from=outputs_from)
    first = outputs_from or 0
    entries = found.prompt_logprobs()
    assert len(entries) == len(prompt)
    assert entries[: first + 1] == (None,) * (first + 1)
    for i in range(first + 1, len(prompt)):
        expected = log_softmax(prompt[:i])
        assert entries[i].token_id == prompt[i]
        assert entries[i].logprob == pytest.approx(expected[prompt[i]], abs=1e-5)
        assert len(entries[i].top) == 2
    assert found.events[-1].num_cached_tokens == first
    assert found.tokens() == greedy_continuation(prompt, 2)


def test_prompt_log_probabilities_of_a_single_token_survive_preemption() -> None:
    """There are none to gather, before as after the prompt is computed again."""
    runner = Runner(ScriptedModel(num_blocks=4), max_model_len=16)
    long, short = runner.run(
        make_request([5] * 4, max_tokens=12), make_request([1], max_tokens=12, prompt_logprobs=1)
    )
    assert runner.core.stats().num_preemptions > 0
    assert short.prompt_logprobs() == (None,)
    assert short.tokens() == greedy_continuation([1], 12)
    assert long.tokens() == greedy_continuation([5] * 4, 12)


def test_choices_draw_from_seed_plus_index_and_share_one_prefill() -> None:
    runner = Runner(enable_prefix_caching=False, max_num_batched_tokens=64)
    prompt = list(range(30))
    together = runner.generate(prompt, n=3, temperature=1.5, seed=40, max_tokens=8)
    assert runner.model.num_rows == len(prompt) + 3 * 7, "the prompt is computed once"
    for choice in range(3):
        single = runner.generate(prompt, temperature=1.5, seed=40 + choice, max_tokens=8)
        assert together.tokens(choice) == single.tokens()
    assert len({tuple(together.tokens(choice)) for choice in range(3)}) == 3
    runner.assert_nothing_leaks()


def test_more_choices_than_may_run_together() -> None:
    runner = Runner(max_num_seqs=2)
    together = runner.generate(PROMPT, n=7, temperature=1.5, seed=3, max_tokens=6)
    alone = Runner(max_num_seqs=7).generate(PROMPT, n=7, temperature=1.5, seed=3, max_tokens=6)
    assert [together.tokens(c) for c in range(7)] == [alone.tokens(c) for c in range(7)]
    runner.assert_nothing_leaks()


def test_scripted_output_runs_to_its_stop_token() -> None:
    model = ScriptedModel(script=scripted_outputs({PROMPT: (8, 9, 10, 0)}))
    found = Runner(model).generate(PROMPT, eos_token_ids=frozenset({0}))
    assert (found.tokens(), found.reason) == ([8, 9, 10], "stop")


def test_a_top_k_beyond_the_vocabulary_means_all_of_it() -> None:
    every = Runner().generate(PROMPT, temperature=1.0, seed=1, max_tokens=8)
    assert (
        Runner().generate(PROMPT, temperature=1.0, seed=1, max_tokens=8, top_k=10**12).tokens()
        == every.tokens()
    )
