"""LLM over the real engine and a scripted model."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from edgewise import (
    LLM,
    ConfigError,
    ContextLengthError,
    EngineDeadError,
    InvalidRequestError,
    SamplingParams,
)
from edgewise.pipeline import Pipeline
from tests.support.pipelines import make_pipeline
from tests.support.waiting import pool_is_idle, wait_until

GREEDY = SamplingParams(temperature=0, max_tokens=20)
ANSWERS = {"1:": "one</s>", "2:": "two</s>", "3:": "three</s>", "assistant\n": "hi there<|im_end|>"}


@pytest.fixture
def make_llm() -> Iterator[Callable[..., LLM]]:
    made: list[LLM] = []

    def make(*args: object, **kwargs: object) -> LLM:
        made.append(LLM.from_pipeline(make_pipeline(*args, **kwargs)))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


@pytest.fixture
def llm(make_llm) -> LLM:
    return make_llm(ANSWERS)


def test_prompts_of_every_kind_in_order(llm: LLM):
    ids = list(b"3:")
    got = llm.generate(["1:", ids, np.array(list(b"2:")), [{"role": "user", "content": "x"}]], GREEDY)
    assert [output.text for output in got] == ["one", "three", "two", "hi there"]
    assert [output.prompt for output in got[:3]] == ["1:", None, None]
    assert got[1].prompt_token_ids == tuple(ids)
    assert got[3].prompt.endswith("<|im_start|>assistant\n")


def test_one_prompt_gives_a_list_of_one(llm: LLM):
    for prompt in ("1:", list(b"1:"), np.array(list(b"1:"))):
        (output,) = llm.generate(prompt, GREEDY)
        assert output.text == "one"


def test_an_output_says_what_was_made_and_what_it_cost(llm: LLM):
    (output,) = llm.generate("1:", GREEDY)
    assert (output.text, output.finish_reason, output.token_ids) == ("one", "stop", tuple(b"one"))
    assert output.outputs[0].stop_reason is None  # the end of a turn is no stop of the request
    assert (output.prompt_tokens, output.usage.completion_tokens, output.num_cached_tokens) == (2, 4, 0)
    assert output.usage.total_tokens == 6
    assert output.timings.arrival_s <= output.timings.first_token_s <= output.timings.finished_s
    assert output.logprobs is None and output.prompt_logprobs is None and output.error is None
    assert output.finished and output.reasoning is None and output.tool_calls == ()


def test_choices_lie_under_their_output(llm: LLM):
    (output,) = llm.generate("1:", GREEDY.with_changes(n=3))
    assert [(choice.index, choice.text) for choice in output.outputs] == [(0, "one"), (1, "one"), (2, "one")]
    assert output.text == "one"
    assert output.usage.completion_tokens == 12


def test_logprobs_come_one_a_token(llm: LLM):
    (output,) = llm.generate("1:", GREEDY.with_changes(logprobs=2, prompt_logprobs=1))
    assert [entry.token_id for entry in output.logprobs] == list(output.token_ids)
    assert all(entry.rank == 1 and len(entry.top) >= 2 for entry in output.logprobs)
    assert output.outputs[0].cumulative_logprob == pytest.approx(
        sum(entry.logprob for entry in output.logprobs)
    )
    assert len(output.prompt_logprobs) == 2
    assert output.prompt_logprobs[0] is None
    assert output.prompt_logprobs[1].token_id == ord(":")


def test_parameters_may_be_one_for_all_or_one_each_or_a_mapping(llm: LLM):
    each = [GREEDY.with_changes(max_tokens=1), {"temperature": 0, "max_tokens": 2}]
    assert [output.text for output in llm.generate(["1:", "2:"], each)] == ["o", "tw"]
    with pytest.raises(InvalidRequestError, match="2 prompts but 1 sampling"):
        llm.generate(["1:", "2:"], [GREEDY])


def test_without_parameters_the_defaults_of_the_python_api_hold(make_llm):
    llm = make_llm({}, generation_config={"temperature": 0.0}, max_model_len=64)
    (output,) = llm.generate("x")
    assert output.text == "." * 63  # greedy by the model's word; 2048 tokens clamped to the room
    assert output.finish_reason == "length"


@pytest.mark.parametrize("empty", [[], ()])
def test_an_empty_prompt_list_is_refused(llm: LLM, empty):
    with pytest.raises(InvalidRequestError, match="prompts must not be empty"):
        llm.generate(empty)
    with pytest.raises(InvalidRequestError):
        llm.chat(empty)


@pytest.mark.parametrize("prompts", [None, 5, b"abc", {"a"}, {"a": 1}, [5.5], [None], ["1:", b"abc"]])
def test_what_is_no_prompt_is_refused(llm: LLM, prompts):
    with pytest.raises(InvalidRequestError, match="must be text, token ids, messages") as caught:
        llm.generate(prompts)
    assert caught.value.param in ("prompt", "prompts")


@pytest.mark.parametrize("sampling", [5, "x", [5], [{}, None]])
def test_what_is_no_sampling_parameters_is_refused(llm: LLM, sampling):
    with pytest.raises(InvalidRequestError) as caught:
        llm.generate(["1:"], sampling)
    assert caught.value.param == "sampling_params"
    with pytest.raises(InvalidRequestError):
        llm.generate_stream("1:", sampling)


def test_prompts_may_come_from_an_iterator(llm: LLM):
    outputs = llm.generate((f"{number}:" for number in (2, 1)), GREEDY)
    assert [output.text for output in outputs] == ["two", "one"]


def test_nothing_starts_unless_every_prompt_is_right(llm: LLM):
    before = llm.pipeline.engine.stats().steps
    with pytest.raises(ContextLengthError, match="maximum context length is 512"):
        llm.generate(["1:", "x" * 600], GREEDY)
    with pytest.raises(InvalidRequestError, match="outside the vocabulary"):
        llm.generate([[1], [99999]], GREEDY)
    assert llm.pipeline.engine.stats().steps == before


def test_a_request_that_fails_alone_is_an_output_with_its_error(llm: LLM, caplog: pytest.LogCaptureFixture):
    def bad(ids: object, logits: object) -> None:
        raise RuntimeError("mine")

    with caplog.at_level(logging.WARNING, "edgewise.pipeline"):
        first, second = llm.generate(["1:", "2:"], [GREEDY.with_changes(logits_processors=(bad,)), GREEDY])
    assert (first.finish_reason, first.text) == ("error", "")
    assert first.error is not None
    assert second.text == "two"
    assert "failed" in caplog.text


def test_a_stop_string_of_a_later_prompt_ends_it_at_once(make_llm):
    """The second request would run 400 tokens; it must end while the first still runs."""
    llm = make_llm({"2:": "ab"}, model={"step_delay_s": 0.001})
    first, second = llm.generate(
        ["x", "2:"], [GREEDY.with_changes(max_tokens=200), GREEDY.with_changes(max_tokens=400, stop=["ab"])]
    )
    assert second.finish_reason == "stop"
    assert first.finish_reason == "length"
    wait_until(lambda: pool_is_idle(llm.pipeline.engine))
    assert llm.pipeline.engine.stats().steps < 300


def test_chat_takes_one_conversation_or_many(llm: LLM):
    conversation = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
    ]
    assert [o.text for o in llm.chat(conversation, GREEDY)] == ["hi there"]
    assert [o.text for o in llm.chat([conversation, conversation], GREEDY)] == ["hi there"] * 2


def test_chat_continues_a_trailing_assistant_turn(make_llm):
    llm = make_llm({"assistant\nGood ": "day<|im_end|>"})
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "Good "}]
    (output,) = llm.chat(messages, GREEDY)
    assert output.text == "day"


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ("hello", "messages must be"),
        ([1, 2], "messages must be"),
        ([{"role": "wizard", "content": "x"}], r"messages\[0\].role"),
        ([{"role": "user"}], r"messages\[0\].content is required"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "image input"),
    ],
)
def test_bad_messages_are_refused(llm: LLM, messages, said: str):
    with pytest.raises(InvalidRequestError, match=said):
        llm.chat(messages, GREEDY)


@pytest.mark.parametrize("prompt", ["1:", list(b"1:"), [{"role": "user", "content": "x"}]])
def test_a_stream_gives_deltas(llm: LLM, prompt):
    deltas = list(llm.generate_stream(prompt, GREEDY))
    text = "".join(delta.text for delta in deltas)
    assert text in ("one", "hi there")
    assert tuple(i for delta in deltas for i in delta.token_ids) == tuple(text.encode())
    assert [delta.finished for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    last = deltas[-1]
    assert (last.finish_reason, last.text) == ("stop", "")
    assert last.usage.completion_tokens == len(text) + 1
    assert last.prompt_tokens == last.usage.prompt_tokens > 0
    assert last.timings is not None
    assert all(delta.finish_reason is None and delta.usage is None for delta in deltas[:-1])


def test_a_stream_checks_its_prompt_at_once(llm: LLM):
    with pytest.raises(InvalidRequestError):
        llm.generate_stream("", GREEDY)


def test_a_failed_stream_raises(llm: LLM):
    def bad(ids: object, logits: object) -> None:
        raise RuntimeError("mine")

    with pytest.raises(Exception, match="mine"):
        list(llm.generate_stream("1:", GREEDY.with_changes(logits_processors=(bad,))))


def test_dropping_a_stream_cancels_its_request(make_llm):
    llm = make_llm({}, model={"step_delay_s": 0.002})
    for begun in (True, False):
        deltas = llm.generate_stream("x", GREEDY.with_changes(max_tokens=400))
        if begun:
            next(deltas)
        del deltas
        wait_until(lambda: pool_is_idle(llm.pipeline.engine), timeout_s=0.5)


@pytest.mark.parametrize(("threads", "calls"), [(8, 12), pytest.param(32, 50, marks=pytest.mark.slow)])
def test_calls_from_many_threads_equal_their_serial_results(make_llm, threads: int, calls: int):
    llm = make_llm(model={"block_size": 4}, num_blocks=400, max_model_len=128)
    params = [
        SamplingParams(
            temperature=0.8, top_k=20, seed=i, max_tokens=3 + i % 5, stop=["e"] if i % 3 == 0 else []
        )
        for i in range(calls)
    ]

    def run(thread: int) -> list[tuple[str, tuple[int, ...], str]]:
        results = []
        for i, one in enumerate(params):
            (output,) = llm.generate(f"thread {thread % 4} call {i}", one)
            results.append((output.text, output.token_ids, output.finish_reason))
        return results

    serial = [run(kind) for kind in range(4)]
    with ThreadPoolExecutor(threads) as pool:
        together = list(pool.map(run, range(threads)))
    assert together == [serial[thread % 4] for thread in range(threads)]
    assert pool_is_idle(llm.pipeline.engine) or wait_until(lambda: pool_is_idle(llm.pipeline.engine)) is None


def test_ctrl_c_returns_within_a_second_with_the_pool_empty(make_llm):
    llm = make_llm({}, model={"step_delay_s": 0.01}, max_num_seqs=4)
    timer = threading.Timer(0.15, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    started_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        llm.generate([f"prompt {i}" for i in range(12)], GREEDY.with_changes(max_tokens=450))
    assert time.monotonic() - started_s < 1.15
    wait_until(lambda: pool_is_idle(llm.pipeline.engine), timeout_s=0.05)
    (output,) = llm.generate("again", GREEDY)
    assert output.text == "." * 20


def test_ctrl_c_in_a_long_prefill(make_llm):
    llm = make_llm({}, model={"row_delay_s": 0.01}, max_model_len=500)
    threading.Timer(0.15, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    started_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        llm.generate("x" * 400, GREEDY)
    assert time.monotonic() - started_s < 1.15
    wait_until(lambda: pool_is_idle(llm.pipeline.engine), timeout_s=0.05)


def test_close_is_final_and_repeatable(llm: LLM):
    with llm as same:
        assert same is llm
    llm.close()
    with pytest.raises(EngineDeadError, match="this LLM is closed"):
        llm.generate("1:")


def test_a_collected_llm_releases_its_model():
    pipeline: Pipeline = make_pipeline(ANSWERS)
    llm = LLM.from_pipeline(pipeline)
    gone = weakref.ref(llm)
    del llm
    gc.collect()
    assert gone() is None
    with pytest.raises(EngineDeadError):
        pipeline.start(pipeline.prepare_prompt("1:", {}, request_id="r"))


def test_closing_from_another_thread_ends_a_running_call(make_llm):
    llm = make_llm({}, model={"step_delay_s": 0.005})
    threading.Timer(0.1, llm.close).start()
    (output,) = llm.generate("x", GREEDY.with_changes(max_tokens=450))
    assert output.finish_reason == "cancelled"
    assert output.text.startswith("..")


def test_serve_hands_the_pipeline_to_the_server(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    import edgewise.server

    served: list[tuple[object, object]] = []
    monkeypatch.setattr(edgewise.server, "serve", lambda *args: served.append(args))
    llm.serve("127.0.0.2", 8123, api_key="k", strict_model_names=True)
    ((pipeline, options),) = served
    assert pipeline is llm.pipeline
    assert (options.host, options.port, options.api_keys, options.strict_model_names) == (
        "127.0.0.2",
        8123,
        ("k",),
        True,
    )
    with pytest.raises(ConfigError, match="strict_names"):
        llm.serve(strict_names=True)
