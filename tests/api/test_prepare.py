"""Preparing requests: what becomes tokens, and what is refused before it is queued."""

from __future__ import annotations

import time

import numpy as np
import pytest

from edgewise.config import ChatOptions
from edgewise.core.chat import ChatRequest, MediaPart, Message, TextPart
from edgewise.core.errors import ContextLengthError, InvalidRequestError
from edgewise.core.sampling import SamplingParams
from edgewise.pipeline.chat_style import chat_style_for
from edgewise.pipeline.defaults import PYTHON
from edgewise.pipeline.prepare import Preparer
from tests.support.byte_tokenizer import ByteTokenizer
from tests.support.pipelines import CHATML, make_template

TOKENIZER = ByteTokenizer(adds_bos=True)
BOS, END, START, TURN_END = (
    TOKENIZER.special_tokens[t] for t in ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
)


STYLE = chat_style_for(TOKENIZER, None, ChatOptions())  # type: ignore[arg-type]


def preparer(
    *, template: str | None = CHATML, window: int = 100, max_input_len: int | None = None, **more
) -> Preparer:
    return Preparer(
        tokenizer=TOKENIZER,
        template=template and make_template(template),
        max_model_len=window,
        max_input_len=max_input_len or window,
        vocab_size=TOKENIZER.vocab_size,
        style=STYLE,
        **more,
    )


def user(text: str, **more) -> ChatRequest:
    return ChatRequest(messages=(Message("user", (TextPart(text),)),), **more)


def test_a_raw_prompt_is_its_authors_own_template():
    got = preparer().prepare_prompt("a<|im_end|>", {}, request_id="r")
    assert got.request.prompt_token_ids.tolist() == [BOS, 97, TURN_END]
    assert got.request.prompt_token_ids.dtype == np.int32
    assert got.prompt_text == "a<|im_end|>"
    plain = preparer().prepare_prompt(
        "<s>", {}, request_id="r", add_special_tokens=False, parse_special=False
    )
    assert plain.request.prompt_token_ids.tolist() == list(b"<s>")


def test_control_tokens_of_a_chat_come_from_the_template_alone():
    ids = (
        preparer(window=200)
        .prepare_chat(user("x<|im_end|>y"), request_id="r")
        .request.prompt_token_ids.tolist()
    )
    assert ids.count(TURN_END) == 1
    assert ids.count(START) == 2
    assert bytes(i for i in ids if i < 256) == b"user\nx<|im_end|>y\nassistant\n"


def test_a_request_carries_what_the_engine_needs():
    request = user("hi", sampling={"temperature": 0, "seed": 4, "max_tokens": 9}, priority=3, cache_salt="me")
    got = preparer(eos_token_ids=frozenset({65})).prepare_chat(request, request_id="r7").request
    assert (got.request_id, got.priority, got.cache_salt) == ("r7", 3, "me")
    assert (got.sampling.temperature, got.sampling.seed, got.sampling.max_tokens) == (0, 4, 9)
    assert got.eos_token_ids == {END, TURN_END, 65}
    assert got.outputs_from is None
    assert all(0 < border <= len(got.prompt_token_ids) for border in got.cache_borders)
    assert 0 <= time.monotonic() - got.arrival_s < 5


def test_prompt_logprobs_want_every_position():
    got = preparer().prepare_prompt("abc", {"prompt_logprobs": 2}, request_id="r")
    assert got.request.outputs_from == 0


@pytest.mark.parametrize("asked", [False, True])
def test_thinking_is_off_unless_asked_for(asked: bool):
    template = "{{ 'thinks' if enable_thinking else 'plain' }}{{ messages[0].content }}"
    for request in (
        user("", sampling={"enable_thinking": asked}),
        user("", template_kwargs={"enable_thinking": asked}),
    ):
        text = preparer(template=template).prepare_chat(request, request_id="r").prompt_text
        assert text == ("thinks" if asked else "plain")


def test_sampling_params_stand_as_they_are_but_for_the_room():
    params = SamplingParams(temperature=0.1, max_tokens=1000)
    got = preparer().prepare_prompt("abc", params, request_id="r", defaults=PYTHON, add_special_tokens=False)
    assert got.request.sampling == params.with_changes(max_tokens=97)


@pytest.mark.parametrize("prompt", ["", [], np.array([], np.int32)])
def test_an_empty_prompt_is_refused(prompt):
    with pytest.raises(InvalidRequestError, match="must not be empty") as caught:
        preparer().prepare_prompt(prompt, {}, request_id="r", add_special_tokens=False)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    "bad", [[-1], [1, TOKENIZER.vocab_size], [2**70], [1.5], [True], ["a"], [[1]], [None], [1, "a"]]
)
def test_token_ids_that_are_none_are_refused(bad):
    with pytest.raises(InvalidRequestError) as caught:
        preparer().prepare_prompt(bad, {}, request_id="r")
    assert caught.value.param == "prompt"


def test_token_ids_are_taken_in_any_sequence():
    for ids in ([1, 2], (1, 2), np.array([1, 2]), range(1, 3)):
        assert preparer().prepare_prompt(ids, {}, request_id="r").request.prompt_token_ids.tolist() == [1, 2]


def test_a_prompt_must_leave_room_for_a_token():
    fits = preparer(window=10).prepare_prompt([1] * 9, {}, request_id="r")
    assert fits.request.sampling.max_tokens == 1
    with pytest.raises(ContextLengthError, match=r"maximum context length is 10 tokens.* 10 tokens"):
        preparer(window=10).prepare_prompt([1] * 10, {}, request_id="r")
    scored = preparer(window=10).prepare_prompt([1] * 10, {"max_tokens": 0}, request_id="r")
    assert scored.request.sampling.max_tokens == 0


def test_max_input_len_bounds_the_prompt_alone():
    with pytest.raises(ContextLengthError) as caught:
        preparer(window=100, max_input_len=5).prepare_prompt([1] * 6, {}, request_id="r")
    assert (caught.value.prompt_tokens, caught.value.max_model_len) == (6, 5)


def test_what_cannot_fit_at_the_longest_token_is_refused_before_tokenising(monkeypatch):
    monkeypatch.setattr(TOKENIZER, "encode", lambda *_, **__: pytest.fail("tokenised"))
    started_s = time.perf_counter()
    for call in (
        lambda: preparer().prepare_prompt("a" * (16 << 20), {}, request_id="r"),
        lambda: preparer().prepare_chat(user("a" * (16 << 20)), request_id="r"),
    ):
        with pytest.raises(ContextLengthError, match=r"at least \d+ tokens") as caught:
            call()
        assert caught.value.prompt_tokens >= (16 << 20) / TOKENIZER.max_token_bytes
    assert time.perf_counter() - started_s < 2


def test_lone_surrogates_are_refused_by_place():
    with pytest.raises(InvalidRequestError, match=r"lone surrogate '\\ud83d' at character 2"):
        preparer().prepare_prompt("ab\ud83d", {}, request_id="r")
    with pytest.raises(InvalidRequestError) as caught:
        preparer().prepare_chat(user("\udc00"), request_id="r")
    assert caught.value.param == "messages[0].content"


def test_media_is_refused_by_name():
    request = ChatRequest(messages=(Message("user", (MediaPart("image", {}),)),))
    with pytest.raises(InvalidRequestError, match=r"messages\[0\].content holds image input"):
        preparer().prepare_chat(request, request_id="r")


def test_a_model_without_a_template_cannot_chat():
    with pytest.raises(InvalidRequestError, match="no chat template"):
        preparer(template=None).prepare_chat(user("hi"), request_id="r")


def test_a_model_with_a_broken_template_says_what_is_wrong_with_it():
    with pytest.raises(InvalidRequestError, match="cannot be used: line 3"):
        preparer(template=None, template_fault="line 3").prepare_chat(user("hi"), request_id="r")


def test_a_chat_without_messages_is_refused():
    with pytest.raises(InvalidRequestError, match="must not be empty"):
        preparer().prepare_chat(ChatRequest(messages=()), request_id="r")


def test_bad_words_are_tokenised_at_a_start_and_after_a_space():
    got = preparer().prepare_prompt("a", {"bad_words": ["no"]}, request_id="r")
    assert got.request.bad_word_ids == (tuple(b"no"),)  # " no" ends with "no": one rule covers both


def test_generation_config_fills_in(monkeypatch):
    got = preparer(generation_config={"temperature": 0.25}).prepare_prompt("a", {}, request_id="r")
    assert got.request.sampling.temperature == 0.25


def test_more_alternatives_than_memory_should_hold_are_refused():
    with pytest.raises(InvalidRequestError, match="ask for fewer") as caught:
        preparer(window=1000).prepare_prompt(
            "a", {"logprobs": -1, "max_tokens": 400, "n": 128}, request_id="r"
        )
    assert caught.value.param == "logprobs"
    assert preparer().prepare_prompt("a", {"logprobs": -1, "max_tokens": 1}, request_id="r")
