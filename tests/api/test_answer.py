"""Answer: token events in, chat events out, without an engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.core.chat import Failed, Finish, PartDelta, PartEnd, PartStart
from edgewise.core.requests import GenerationRequest, RequestTimings, TokenEvent, TokenLogprob
from edgewise.core.sampling import SamplingParams
from edgewise.pipeline.answer import Answer
from tests.support.byte_tokenizer import ByteTokenizer
from tests.support.examples import examples

TOKENIZER = ByteTokenizer()
TIMINGS = RequestTimings(1.0, 2.0, 3.0, 4.0)


class Run:
    """An Answer and what it said."""

    def __init__(self, **sampling: object) -> None:
        request = GenerationRequest("r", np.arange(1, 6, dtype=np.int32), SamplingParams(**sampling))
        self.stopped: list[int] = []
        self.answer = Answer(request, TOKENIZER, self.stopped.append)
        self.events: list[object] = []

    def feed(
        self, text: str | bytes = "", *, choice: int = 0, finish: str | None = None, **more: object
    ) -> list[object]:
        data = text.encode() if isinstance(text, str) else text
        new = self.answer.feed(TokenEvent(choice, tuple(data), finish_reason=finish, **more))
        self.events += new
        return new

    def text(self, choice: int = 0) -> str:
        return "".join(e.text for e in self.events if isinstance(e, PartDelta) and e.choice == choice)

    def ids(self, choice: int = 0) -> bytes:
        return bytes(
            i for e in self.events if isinstance(e, PartDelta) and e.choice == choice for i in e.token_ids
        )

    def finishes(self) -> list[Finish]:
        return [e for e in self.events if isinstance(e, Finish)]


def test_a_plain_answer_is_one_part_and_a_finish():
    run = Run()
    run.feed("H", num_cached_tokens=3)
    run.feed("i")
    run.feed(finish="stop", stop_token_id=257, timings=TIMINGS, num_cached_tokens=3)
    start, first, second, end, finish = run.events
    assert start == PartStart(0, "text", "text-0")
    assert (first.text, first.token_ids, second.text) == ("H", (72,), "i")
    assert end == PartEnd(0)
    assert (finish.reason, finish.matched_stop) == (
        "stop",
        None,
    )  # the end of a turn is no stop of the request
    usage = finish.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (5, 3, 3)
    assert run.answer.finished and run.answer.engine_finished
    assert run.answer.timings == TIMINGS
    assert run.stopped == []


def test_an_empty_answer_has_no_part():
    run = Run()
    run.feed(finish="stop", stop_token_id=257)
    assert [type(e) for e in run.events] == [Finish]
    assert run.answer.usage.completion_tokens == 1


def test_tokens_wait_for_the_text_they_belong_to():
    run = Run()
    for byte in "é".encode()[:1], "é".encode()[1:]:
        run.feed(byte)
    assert [(e.text, bytes(e.token_ids).decode()) for e in run.events if isinstance(e, PartDelta)] == [
        ("é", "é")
    ]


def test_a_cut_character_comes_out_at_the_end():
    run = Run()
    run.feed(b"a\xc3", finish="length")
    assert run.text() == "a\ufffd"
    assert run.ids() == b"a\xc3"


def test_a_stop_string_across_tokens_ends_the_choice_and_tells_the_engine():
    run = Run(stop=["END"])
    for token in "okEN":
        run.feed(token)
    assert run.text() == "ok"
    run.feed("D")
    (finish,) = run.finishes()
    assert (finish.reason, finish.matched_stop) == ("stop", "END")
    assert run.text() == "ok"
    assert run.ids() == b"okEND"
    assert finish.usage.completion_tokens == 5
    assert run.stopped == [0]
    assert run.answer.finished and not run.answer.engine_finished
    run.feed("more", finish="stop")
    assert run.finishes() == [finish]
    assert run.answer.usage.completion_tokens == 5
    assert run.answer.engine_finished


def test_tokens_after_the_stop_in_the_same_event_do_not_count():
    run = Run(stop=["b"], include_stop_str_in_output=True)
    run.feed("abc")
    assert (run.text(), run.ids(), run.answer.usage.completion_tokens) == ("ab", b"ab", 2)


def test_a_stop_in_the_engines_last_event_needs_no_cancel():
    run = Run(stop=["b"])
    run.feed("ab", finish="length")
    assert run.finishes()[0].reason == "stop"
    assert run.stopped == []


def test_text_held_for_a_stop_that_never_came_is_given_at_the_end():
    run = Run(stop=["END"])
    run.feed("xEN")
    assert run.text() == "x"
    run.feed(finish="length")
    assert run.text() == "xEN"


def test_stop_strings_do_not_count_within_min_tokens():
    run = Run(stop=["b"], min_tokens=3)
    run.feed("abab")
    assert run.finishes()[0].usage.completion_tokens == 4
    assert run.text() == "aba"


def test_the_text_is_whole_across_the_border_of_min_tokens():
    run = Run(stop=["b"], min_tokens=2)
    run.feed("é🙂b".encode())
    run2 = Run(stop=["b"], min_tokens=3)
    run2.feed("éé🙂b".encode())
    assert (run.text(), run2.text()) == ("é🙂", "éé🙂")
    assert run.finishes()[0].reason == run2.finishes()[0].reason == "stop"


def test_logprobs_stay_with_their_tokens():
    run = Run(logprobs=0, stop=["zz"])

    def logprobs(data: str) -> tuple[TokenLogprob, ...]:
        return tuple(TokenLogprob(ord(c), -1.0, 1) for c in data)

    for token in "azb":
        run.feed(token, logprobs=logprobs(token))
    run.feed(finish="stop", logprobs=logprobs("!"), stop_token_id=257)
    deltas = [e for e in run.events if isinstance(e, PartDelta)]
    for delta in deltas:
        assert tuple(entry.token_id for entry in delta.logprobs) == delta.token_ids
    assert [e.text for e in deltas] == ["a", "zb"]


def test_choices_are_apart_and_usage_is_of_all():
    run = Run(n=2, stop=["!"])
    run.feed("a", choice=0)
    run.feed("b!", choice=1)
    assert run.stopped == [1]
    assert not run.answer.finished
    run.feed("c", choice=1)
    run.feed("d", choice=0, finish="length")
    assert (run.text(0), run.text(1)) == ("ad", "b")
    assert [(f.choice, f.reason) for f in run.finishes()] == [(1, "stop"), (0, "length")]
    assert run.answer.usage.completion_tokens == 4
    assert run.answer.finished


def test_a_cancelled_request_ends_every_open_choice_with_its_held_text():
    run = Run(n=3, stop=["END"])
    run.feed("a", choice=0, finish="length")
    run.feed("bE", choice=1)
    run.feed(choice=1, finish="cancelled")
    assert [(f.choice, f.reason) for f in run.finishes()] == [
        (0, "length"),
        (1, "cancelled"),
        (2, "cancelled"),
    ]
    assert run.text(1) == "bE"
    assert run.answer.finished and run.answer.engine_finished


def test_an_error_is_one_failed_event():
    run = Run(n=2)
    error = ValueError("no")
    run.feed("a")
    assert run.feed(finish="error", error=error) == [Failed(error)]
    assert run.answer.finished
    assert run.feed("late") == []


def test_prompt_logprobs_are_kept():
    run = Run(prompt_logprobs=0)
    entries = (None, TokenLogprob(2, -0.5, 1))
    run.feed("a", prompt_logprobs=entries)
    run.feed("b")
    assert run.answer.prompt_logprobs == entries


@settings(max_examples=examples(60))
@given(
    text=st.text(st.sampled_from("abé€🙂"), max_size=12),
    stop=st.lists(st.text(st.sampled_from("abé€🙂"), min_size=1, max_size=3), max_size=3),
    cuts=st.lists(st.integers(1, 5), max_size=40),
)
def test_text_is_what_whole_decoding_gives_however_tokens_arrive(
    text: str, stop: list[str], cuts: Sequence[int]
):
    """The text before the earliest completed stop string; the ids up to the token that completed it."""
    run = Run(stop=stop)
    data = text.encode()
    position = 0
    for size in cuts or [1]:
        run.feed(data[position : position + size])
        position += size
    run.feed(data[position:], finish="length")
    ends = [(text.find(s) + len(s), -len(s), s) for s in stop if s in text]
    if not ends:
        assert run.text() == text
        assert run.ids() == data
        assert run.finishes()[0].reason == "length"
        return
    end, _, _ = min(ends)
    matched = run.finishes()[0].matched_stop
    assert run.finishes()[0].reason == "stop"
    assert run.ids() == text[:end].encode()
    assert run.text() + matched == text[:end]


@pytest.mark.parametrize("skip", [True, False])
def test_special_tokens_in_the_text(skip: bool):
    run = Run(skip_special_tokens=skip)
    run.answer.feed(TokenEvent(0, (97,)))
    events = run.answer.feed(TokenEvent(0, (258, 98), finish_reason="length"))
    text = "".join(e.text for e in events if isinstance(e, PartDelta))
    assert text == ("b" if skip else "<|im_start|>b")
