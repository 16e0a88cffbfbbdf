"""The chain of sampling defaults: request, then generation_config.json, then the entrance."""

from __future__ import annotations

import pytest

from edgewise.core.errors import InvalidRequestError
from edgewise.core.sampling import SamplingParams
from edgewise.pipeline.defaults import (
    CHAT,
    COMPLETIONS,
    MAX_TOKENS_LIMIT,
    MESSAGES,
    PYTHON,
    RESPONSES,
    fit_max_tokens,
    sampling_params,
)

MODEL = {
    "temperature": 0.3,
    "top_k": 7,
    "repetition_penalty": 1.1,
    "max_new_tokens": 99,
    "do_sample": True,
    "eos_token_id": 3,
}


@pytest.mark.parametrize("entrance", [CHAT, MESSAGES, RESPONSES, COMPLETIONS, PYTHON])
def test_an_entrance_alone_samples_with_its_own_defaults(entrance):
    got = sampling_params({}, generation_config={}, defaults=entrance)
    assert (got.temperature, got.top_p, got.top_k) == (0.7, 0.9, 50)
    assert got.max_tokens == {COMPLETIONS: 16, PYTHON: 2048}.get(entrance)


def test_the_models_own_defaults_come_before_the_entrances():
    got = sampling_params({}, generation_config=MODEL, defaults=CHAT)
    assert (got.temperature, got.top_p, got.top_k, got.repetition_penalty, got.max_tokens) == (
        0.3,
        0.9,
        7,
        1.1,
        99,
    )


def test_the_request_comes_before_all():
    got = sampling_params(
        {"temperature": 0, "top_k": -1, "max_tokens": 5}, generation_config=MODEL, defaults=CHAT
    )
    assert (got.temperature, got.top_k, got.max_tokens, got.repetition_penalty) == (0, 0, 5, 1.1)


def test_none_means_not_given():
    got = sampling_params({"temperature": None, "stop": None}, generation_config={}, defaults=CHAT)
    assert (got.temperature, got.stop) == (0.7, ())


def test_max_completion_tokens_wins():
    given = {"max_tokens": 5, "max_completion_tokens": 8}
    assert sampling_params(given, generation_config={}, defaults=COMPLETIONS).max_tokens == 8


def test_minus_one_asks_for_the_room_left():
    got = sampling_params({"max_tokens": -1}, generation_config={}, defaults=COMPLETIONS)
    assert got.max_tokens is None
    assert fit_max_tokens(got, prompt_len=30, max_model_len=100).max_tokens == 70


def test_an_unknown_field_is_refused_with_a_suggestion():
    with pytest.raises(InvalidRequestError) as caught:
        sampling_params({"temprature": 1}, generation_config={}, defaults=CHAT)
    assert caught.value.param == "temprature"
    assert caught.value.hint == "did you mean 'temperature'?"


@pytest.mark.parametrize(
    "given",
    [{"stop": 5}, {"temperature": "hot"}, {"top_p": float("nan")}, {"logit_bias": [1]}, {"stop": [""]}],
)
def test_bad_values_are_invalid_requests(given):
    with pytest.raises(InvalidRequestError):
        sampling_params(given, generation_config={}, defaults=CHAT)


@pytest.mark.parametrize(
    ("wanted", "got"), [(None, 70), (10, 10), (70, 70), (71, 70), (MAX_TOKENS_LIMIT, 70), (0, 0)]
)
def test_max_tokens_is_clamped_to_the_room(wanted, got):
    assert (
        fit_max_tokens(SamplingParams(max_tokens=wanted), prompt_len=30, max_model_len=100).max_tokens == got
    )


def test_max_tokens_above_the_limit_is_refused():
    with pytest.raises(InvalidRequestError, match=rf"at most {MAX_TOKENS_LIMIT}"):
        fit_max_tokens(SamplingParams(max_tokens=MAX_TOKENS_LIMIT + 1), prompt_len=1, max_model_len=100)
    window = 2 * MAX_TOKENS_LIMIT
    assert (
        fit_max_tokens(SamplingParams(max_tokens=window), prompt_len=1, max_model_len=window).max_tokens
        == window - 1
    )
    with pytest.raises(InvalidRequestError, match=f"at most {window}"):
        fit_max_tokens(SamplingParams(max_tokens=window + 1), prompt_len=1, max_model_len=window)


def test_min_tokens_that_cannot_fit_are_refused():
    with pytest.raises(InvalidRequestError, match=r"min_tokens \(80\).* 70 tokens"):
        fit_max_tokens(SamplingParams(min_tokens=80, max_tokens=None), prompt_len=30, max_model_len=100)
