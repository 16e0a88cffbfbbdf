"""The engine thread and its doors: refusals, cancelling in every phase, failures, draining, closing."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from edgewise.core.errors import (
    ContextLengthError,
    EngineDeadError,
    InvalidRequestError,
    OverloadedError,
    RequestCancelledError,
)
from edgewise.core.requests import GenerationRequest, TokenEvent
from edgewise.core.sampling import SamplingParams
from edgewise.decoder.batch import StepFailedError
from edgewise.engine import Engine, EngineConfig, RequestRecord, StepRecord
from tests.engine.running import Recorder, make_request
from tests.support.scripted_model import ScriptedModel, greedy_continuation
from tests.support.waiting import pool_is_idle, wait_until

PROMPT = [1, 2, 3, 4, 5, 6]
StartEngine = Callable[..., tuple[Engine, ScriptedModel]]


@pytest.fixture
def start() -> Iterator[StartEngine]:
    engines: list[Engine] = []

    def make(model: ScriptedModel | None = None, **config: Any) -> tuple[Engine, ScriptedModel]:
        model = model or ScriptedModel()
        config = {"max_model_len": 200, "max_num_seqs": 4, "max_num_batched_tokens": 32, **config}
        engines.append(Engine(model, EngineConfig(**config)))
        return engines[-1], model

    yield make
    for engine in engines:
        engine.close()


def submit(engine: Engine, request: GenerationRequest) -> Recorder:
    recorder = Recorder(request.sampling.n)
    engine.submit(request, recorder)
    return recorder


def run(engine: Engine, request: GenerationRequest) -> Recorder:
    recorder = submit(engine, request)
    wait_until(lambda: recorder.ended)
    return recorder


def test_a_request_runs_and_reports_its_times(start: StartEngine) -> None:
    engine, _ = start()
    found = run(engine, make_request(PROMPT, max_tokens=7))
    assert found.tokens() == greedy_continuation(PROMPT, 7)
    times = found.finishes[0].timings
    assert times and times.arrival_s <= times.scheduled_s <= times.first_token_s <= times.finished_s
    wait_until(lambda: pool_is_idle(engine))


@pytest.mark.parametrize(
    ("prompt", "options", "param"),
    [
        ([], {}, "prompt_token_ids"),
        ([1, 32], {}, "prompt_token_ids"),
        ([-1], {}, "prompt_token_ids"),
        ([1], {"stop_token_ids": (32,)}, "stop_token_ids"),
        ([1], {"logit_bias": {32: 1.0}}, "logit_bias"),
        ([1], {"allowed_token_ids": (1, 99)}, "allowed_token_ids"),
        ([1], {"bad_word_ids": ((1, 40),)}, "bad_words"),
        ([1], {"outputs_from": 1}, "outputs_from"),
    ],
)
def test_what_can_never_run_is_refused_naming_the_field(start: StartEngine, prompt, options, param) -> None:
    engine, model = start()
    with pytest.raises(InvalidRequestError) as caught:
        engine.submit(make_request(prompt, **options), Recorder())
    assert caught.value.param == param
    assert model.num_steps == 0


def test_a_prompt_that_can_never_fit_is_refused_with_both_numbers(start: StartEngine) -> None:
    engine, _ = start(max_model_len=20)
    with pytest.raises(ContextLengthError) as caught:
        engine.submit(make_request([1] * 20), Recorder())
    assert (caught.value.prompt_tokens, caught.value.max_model_len) == (20, 20)
    assert run(engine, make_request([1] * 19)).reason == "length"
    assert run(engine, make_request([1] * 20, max_tokens=0)).reason == "length"


def test_more_than_may_wait_are_refused_until_there_is_room(start: StartEngine) -> None:
    engine, _ = start(ScriptedModel(step_delay_s=0.02), max_num_seqs=1, max_waiting=2)
    running = submit(engine, make_request(PROMPT, "running", max_tokens=50))
    wait_until(lambda: engine.stats().num_running == 1 and bool(running.events))
    waiting = [submit(engine, make_request(PROMPT, max_tokens=2)) for _ in range(2)]
    with pytest.raises(OverloadedError):
        submit(engine, make_request(PROMPT))
    engine.cancel("running")
    wait_until(lambda: all(recorder.ended for recorder in waiting))
    assert run(engine, make_request(PROMPT, max_tokens=2)).reason == "length"


def test_a_request_id_in_use_is_refused(start: StartEngine) -> None:
    engine, _ = start(ScriptedModel(step_delay_s=0.05))
    submit(engine, make_request(PROMPT, "same"))
    with pytest.raises(InvalidRequestError, match="same"):
        submit(engine, make_request(PROMPT, "same"))


@pytest.mark.parametrize("end", ["stop", "cancelled", "error"])
def test_whoever_hears_of_an_end_may_use_the_id_again(start: StartEngine, end: str) -> None:
    engine, _ = start(ScriptedModel(failures={0: StepFailedError("no")} if end == "error" else {}))
    second = Recorder()
    refused: list[Exception] = []

    def again(event: TokenEvent) -> None:
        if event.finish_reason is not None:
            try:
                engine.submit(make_request(PROMPT, "same", max_tokens=2), second)
            except Exception as error:
                refused.append(error)

    engine.submit(make_request(PROMPT, "same", max_tokens=3 if end == "stop" else 150), again)
    if end == "cancelled":
        engine.cancel("same")
    wait_until(lambda: bool(refused) or second.ended)
    assert not refused
    assert second.tokens() == greedy_continuation(PROMPT, 2)
    assert engine.drain(5.0), "both are counted as ended"


def test_cancel_cuts_a_long_prefill_short(start: StartEngine) -> None:
    engine, model = start(ScriptedModel(row_delay_s=1.0))
    found = submit(engine, make_request(PROMPT, "long"))
    wait_until(lambda: model.num_steps == 1)
    began = time.monotonic()
    engine.cancel("long")
    wait_until(lambda: found.ended)
    assert time.monotonic() - began < 0.5, "not after the six seconds of the step"
    assert isinstance(found.error, RequestCancelledError) and found.reason == "cancelled"
    wait_until(lambda: pool_is_idle(engine))
    assert model.num_cancelled_steps == 1


def test_a_prompt_being_computed_counts_as_running(start: StartEngine) -> None:
    engine, model = start(ScriptedModel(row_delay_s=1.0))
    submit(engine, make_request(PROMPT, "long"))
    wait_until(lambda: model.num_steps == 1)
    assert (engine.stats().num_running, engine.stats().num_waiting) == (1, 0)
    assert engine.stats().kv_usage > 0
    engine.cancel("long")


def test_others_in_a_step_cut_short_lose_nothing(start: StartEngine) -> None:
    engine, model = start(ScriptedModel(step_delay_s=0.03))
    others = [submit(engine, make_request([*PROMPT, i], max_tokens=20)) for i in range(2)]
    for i in range(10):
        cut = submit(engine, make_request([i] * 30, f"cut{i}", max_tokens=1))
        wait_until(lambda i=i, cut=cut: f"cut{i}" in engine._in_flight or cut.ended)
        engine.cancel(f"cut{i}")
        wait_until(lambda cut=cut: cut.ended)
    wait_until(lambda: all(other.ended for other in others))
    assert model.num_cancelled_steps > 0
    for i, other in enumerate(others):
        assert other.tokens() == greedy_continuation([*PROMPT, i], 20)


def test_cancel_while_queued_and_while_decoding(start: StartEngine) -> None:
    engine, _ = start(ScriptedModel(step_delay_s=0.01), max_num_seqs=1)
    decoding = submit(engine, make_request(PROMPT, "decoding", max_tokens=150))
    wait_until(lambda: len(decoding.tokens()) > 2)
    queued = submit(engine, make_request(PROMPT, "queued"))
    engine.cancel("queued")
    wait_until(lambda: queued.ended)
    assert queued.reason == "cancelled" and queued.tokens() == [] and not decoding.ended
    engine.cancel("decoding")
    wait_until(lambda: decoding.ended)
    engine.cancel("decoding")  # again, and for somebody unknown: passed over
    engine.cancel("nobody")
    wait_until(lambda: pool_is_idle(engine))


def test_a_choice_ends_as_stopped_while_others_go_on(start: StartEngine) -> None:
    engine, _ = start(ScriptedModel(step_delay_s=0.005))
    found = submit(engine, make_request(PROMPT, "two", n=2, temperature=1.0, seed=1, max_tokens=60))
    wait_until(lambda: len(found.tokens(0)) > 3)
    engine.finish_choice("two", 0)
    wait_until(lambda: found.ended)
    assert found.finishes[0].finish_reason == "stop" and len(found.tokens(0)) < 60
    assert found.finishes[1].finish_reason == "length" and len(found.tokens(1)) == 60


def test_a_step_that_fails_fails_its_requests_and_the_engine_goes_on(start: StartEngine) -> None:
    model = ScriptedModel(failures={2: StepFailedError("lost")})
    engine, _ = start(model, max_num_seqs=1)
    running, queued = (
        submit(engine, make_request(PROMPT, max_tokens=9)),
        submit(engine, make_request(PROMPT, max_tokens=9)),
    )
    wait_until(lambda: running.ended and queued.ended)
    assert isinstance(running.error, StepFailedError)
    assert queued.tokens() == greedy_continuation(PROMPT, 9), "what the failed step wrote is not in the cache"
    wait_until(lambda: pool_is_idle(engine))


def test_a_broken_decoder_ends_the_engine_and_everybody_hears_why(start: StartEngine, caplog) -> None:
    caplog.set_level(logging.CRITICAL + 1, "edgewise.engine")
    engine, _ = start(ScriptedModel(step_delay_s=0.01, failures={3: MemoryError("broken")}), max_num_seqs=1)
    recorders = [submit(engine, make_request([*PROMPT, i])) for i in range(3)]
    wait_until(lambda: all(recorder.ended for recorder in recorders))
    for recorder in recorders:
        assert isinstance(recorder.error, EngineDeadError) and "broken" in str(recorder.error)
    with pytest.raises(EngineDeadError, match="broken"):
        submit(engine, make_request(PROMPT))
    assert isinstance(engine.error, EngineDeadError)
    assert engine.reset_prefix_cache() is False


def test_a_failure_of_the_engine_itself_reaches_everybody_too(
    start: StartEngine, monkeypatch, caplog
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "edgewise.engine")
    engine, _ = start(ScriptedModel(step_delay_s=0.01), max_num_seqs=2)
    recorders = [submit(engine, make_request([*PROMPT, i])) for i in range(4)]
    wait_until(lambda: bool(recorders[0].events))

    def fail(*args: object) -> None:
        raise AssertionError("a bug of ours")

    monkeypatch.setattr(engine._core.scheduler, "remove", fail)
    monkeypatch.setattr(engine._core.kv, "advance", fail)
    wait_until(lambda: all(recorder.ended for recorder in recorders))
    assert all(isinstance(recorder.error, EngineDeadError) for recorder in recorders)
    assert engine.drain(1.0) is True


def test_a_sink_that_fails_is_left_alone_and_its_request_cancelled(start: StartEngine, caplog) -> None:
    caplog.set_level(logging.CRITICAL + 1, "edgewise.engine")
    engine, _ = start()
    calls: list[TokenEvent] = []

    def sink(event: TokenEvent) -> None:
        calls.append(event)
        raise ValueError("sink")

    engine.submit(make_request(PROMPT, max_tokens=50), sink)
    assert run(engine, make_request(PROMPT, max_tokens=5)).tokens() == greedy_continuation(PROMPT, 5)
    assert len(calls) == 1
    wait_until(lambda: pool_is_idle(engine))


def test_close_cancels_everything_within_a_second(start: StartEngine) -> None:
    engine, model = start(ScriptedModel(row_delay_s=2.0))
    recorders = [submit(engine, make_request(PROMPT)) for _ in range(6)]
    wait_until(lambda: model.num_steps == 1)
    began = time.monotonic()
    engine.close()
    assert time.monotonic() - began < 1.0
    assert [recorder.reason for recorder in recorders] == ["cancelled"] * 6
    assert model.closed
    assert engine.stats().num_free_blocks == model.num_blocks
    engine.close()
    with pytest.raises(EngineDeadError, match="closed"):
        submit(engine, make_request(PROMPT))


def test_drain_finishes_what_runs_and_refuses_the_rest(start: StartEngine) -> None:
    engine, _ = start(ScriptedModel(step_delay_s=0.01))
    found = submit(engine, make_request(PROMPT, max_tokens=20))
    assert engine.drain(0.01) is False
    with pytest.raises(OverloadedError):
        submit(engine, make_request(PROMPT))
    assert engine.drain(10.0) is True
    assert found.reason == "length"


def test_reset_prefix_cache(start: StartEngine) -> None:
    engine, _ = start()
    run(engine, make_request(PROMPT, max_tokens=1))
    assert run(engine, make_request(PROMPT, max_tokens=1)).num_cached_tokens == len(PROMPT) - 1
    assert engine.reset_prefix_cache() is True
    assert run(engine, make_request(PROMPT, max_tokens=1)).num_cached_tokens == 0


def test_a_seed_nobody_gave_is_drawn_once_a_request(start: StartEngine) -> None:
    engine, _ = start()
    texts = {
        tuple(run(engine, make_request(PROMPT, temperature=2.0, max_tokens=12)).tokens()) for _ in range(4)
    }
    assert len(texts) > 1


def test_listeners_hear_sums_that_agree_with_the_events(start: StartEngine) -> None:
    steps: list[StepRecord] = []
    requests: list[RequestRecord] = []

    class Listener:
        def on_step(self, record: StepRecord) -> None:
            steps.append(record)

        def on_finish(self, record: RequestRecord) -> None:
            requests.append(record)

    engine, _ = start()
    engine.add_listener(Listener())
    stop = greedy_continuation(PROMPT, 5)[4]
    recorders = [
        submit(engine, make_request(PROMPT, "stops", stop_token_ids=(stop,))),
        submit(engine, make_request(PROMPT, "long", n=2, max_tokens=30)),
    ]
    wait_until(lambda: len(requests) == 2 and all(r.ended for r in recorders))
    eos = frozenset({1, 2, 3})
    unequal = make_request(
        [7, *PROMPT], "unequal", n=3, temperature=1.0, seed=5, max_tokens=40, eos_token_ids=eos
    )
    recorders.append(submit(engine, unequal))
    wait_until(lambda: len(requests) == 3 and recorders[2].ended)
    by_id = {record.request_id: record for record in requests}
    long, stops = by_id["long"], by_id["stops"]
    assert (long.num_generated_tokens, long.num_choices, long.finish_reasons) == (60, 2, ("length", "length"))
    assert stops.num_generated_tokens == len(recorders[0].tokens()) + 1, "with the token that stopped it"
    assert long.num_prompt_tokens == len(PROMPT) and long.max_tokens == 30 and stops.max_tokens == 194
    assert long.choice_tokens == (30, 30)
    lengths = by_id["unequal"].choice_tokens
    stopped = [recorders[2].finishes[choice].finish_reason == "stop" for choice in range(3)]
    assert lengths == tuple(len(recorders[2].tokens(choice)) + stopped[choice] for choice in range(3))
    assert len(set(lengths)) > 1, "the seed must make choices that differ in length"
    total = 60 + stops.num_generated_tokens + sum(lengths)
    assert sum(record.num_generated_tokens for record in steps) == total
    assert sum(len(record.first_token_s) for record in steps) == 3, "one a request, whatever its choices"
    assert sum(len(record.inter_token_s) for record in steps) == total - 6
    prefilled = sum(record.num_prefill_rows for record in steps)
    assert prefilled == sum(record.num_prompt_tokens - record.num_cached_tokens for record in requests)
    assert long.queue_s >= 0 and long.prefill_s > 0 and long.decode_s > 0
    assert long.total_s == pytest.approx(long.queue_s + long.prefill_s + long.decode_s)


def test_many_threads_get_their_serial_results(start: StartEngine) -> None:
    engine, _model = start(ScriptedModel(num_blocks=100, max_outputs=16), max_num_seqs=8)
    prompts = [[(i * j) % 9 for j in range(1, 4 + i % 13)] for i in range(16 * 6)]
    failures: list[Any] = []

    def work(part: list[list[int]]) -> None:
        for prompt in part:
            found = run(engine, make_request(prompt, max_tokens=9))
            if found.tokens() != greedy_continuation(prompt, 9):
                failures.append(prompt)

    threads = [threading.Thread(target=work, args=(prompts[i::16],)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    wait_until(lambda: pool_is_idle(engine))


@pytest.mark.slow
def test_5000_requests_a_third_cancelled_leave_memory_and_blocks_flat(start: StartEngine) -> None:
    engine, model = start(ScriptedModel(num_blocks=64), max_num_seqs=16)
    model.row_counts = deque(maxlen=1)  # type: ignore[assignment]  # else its own log grows
    rng = np.random.default_rng(1)
    ends = {"length": 0, "cancelled": 0}
    lock = threading.Lock()

    def sink(event: TokenEvent) -> None:
        if event.finish_reason:
            with lock:
                ends[event.finish_reason] += 1

    def burst(first: int, count: int) -> None:
        for i in range(first, first + count):
            prompt = rng.integers(0, 32, rng.integers(1, 20)).astype(np.int32)
            request = GenerationRequest(str(i), prompt, SamplingParams(max_tokens=int(rng.integers(1, 12))))
            engine.submit(request, sink)
            if i % 3 == 0:
                engine.cancel(str(i - int(rng.integers(0, 3)) * 3))
        wait_until(lambda: sum(ends.values()) == first + count, timeout_s=60)
        wait_until(lambda: pool_is_idle(engine))

    burst(0, 1000)  # fills the pool, the prefix tree and every free list
    gc.collect()
    before = sys.getallocatedblocks()
    for first in range(1000, 5000, 500):
        burst(first, 500)
    gc.collect()
    grown = sys.getallocatedblocks() - before
    assert ends["cancelled"] > 500
    assert engine.stats().num_free_blocks == model.num_blocks
    # 4,000 requests that each left even one object behind would show; the prefix tree's fill varies by some hundreds.
    assert grown < 3000, f"{grown} more objects are alive"
