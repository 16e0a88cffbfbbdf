"""Streams over the real engine and a scripted model: order, cancelling, dropping, asyncio."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading

import pytest

from edgewise.core.chat import Failed, Finish, PartDelta, PartEnd, PartStart
from edgewise.core.errors import EngineDeadError, InvalidRequestError
from edgewise.pipeline import Pipeline, Stream
from edgewise.pipeline.stream import LoopWaker
from tests.support.waiting import pool_is_idle, wait_until

GREEDY = {"temperature": 0, "max_tokens": 20}


_numbers = itertools.count()


def start(pipeline: Pipeline, prompt: str = "Q:", request_id: str = "", **sampling: object) -> Stream:
    request_id = request_id or f"r{next(_numbers)}"
    return pipeline.start(pipeline.prepare_prompt(prompt, {**GREEDY, **sampling}, request_id=request_id))


def text_of(events: list[object]) -> str:
    return "".join(event.text for event in events if isinstance(event, PartDelta))


def test_a_stream_is_an_iterator_of_events(pipelines):
    stream = start(pipelines({"Q:": "hello</s>"}))
    events = list(stream)
    assert isinstance(events[0], PartStart)
    assert text_of(events) == "hello"
    assert isinstance(events[-2], PartEnd)
    assert events[-1].reason == "stop"
    assert stream.finished
    assert stream.usage.completion_tokens == 6
    assert stream.timings.finished_s >= stream.timings.first_token_s >= stream.timings.arrival_s
    assert list(stream) == []


async def test_a_stream_is_an_async_iterator_of_the_same_events(pipelines):
    pipeline = pipelines({"Q:": "hello</s>"})
    list(start(pipeline))  # from now on the prefix is cached
    expected = list(start(pipeline))
    assert [event async for event in start(pipeline)] == expected
    ready: list[object] = []
    stream = start(pipeline)
    while events := await stream.ready_events():
        ready += events
    assert ready == expected


def test_a_second_run_reports_its_cached_tokens(pipelines):
    pipeline = pipelines({"Q:": "hello</s>"})
    first, second = start(pipeline, "x" * 40 + "Q:"), None
    list(first)
    second = start(pipeline, "x" * 40 + "Q:")
    (finish,) = [event for event in second if isinstance(event, Finish)]
    assert first.usage.cached_tokens == 0
    assert finish.usage.cached_tokens > 30


def test_a_stop_string_ends_the_request_in_the_engine(pipelines):
    pipeline = pipelines({"Q:": "one\ntwo"})
    events = list(start(pipeline, stop="\n", max_tokens=400))
    assert text_of(events) == "one"
    assert (events[-1].reason, events[-1].matched_stop) == ("stop", "\n")
    assert events[-1].usage.completion_tokens == 4
    wait_until(lambda: pool_is_idle(pipeline.engine))


def test_choices_end_on_their_own(pipelines):
    pipeline = pipelines({"Q:": "a!b"})
    events = list(start(pipeline, n=3, stop="!"))
    for choice in range(3):
        mine = [e for e in events if getattr(e, "choice", None) == choice]
        assert text_of(mine) == "a"
        assert mine[-1].reason == "stop"
    wait_until(lambda: pool_is_idle(pipeline.engine))


def test_cancelling_ends_a_stream_with_cancelled(pipelines):
    pipeline = pipelines({}, model={"step_delay_s": 0.002})
    stream = start(pipeline, max_tokens=400)
    next(stream)
    stream.cancel()
    events = list(stream)
    assert events[-1].reason == "cancelled"
    assert pool_is_idle(pipeline.engine) or wait_until(lambda: pool_is_idle(pipeline.engine)) is None


def test_dropping_a_stream_cancels_its_request(pipelines):
    pipeline = pipelines({}, model={"step_delay_s": 0.002})
    stream = start(pipeline, max_tokens=500)
    next(stream)
    gc.disable()  # the drop itself must do it, not a later collection
    try:
        del stream
        wait_until(lambda: pool_is_idle(pipeline.engine), timeout_s=0.5)
    finally:
        gc.enable()


async def test_cancelling_the_task_that_waits_cancels_the_request(pipelines):
    pipeline = pipelines({}, model={"step_delay_s": 0.005})
    stream = start(pipeline, max_tokens=500)

    async def consume() -> None:
        async for _ in stream:
            pass

    task = asyncio.create_task(consume())
    await asyncio.sleep(0.03)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_until, lambda: pool_is_idle(pipeline.engine), timeout_s=0.5)


def test_a_failure_of_one_request_is_an_event_and_harms_no_other(pipelines):
    pipeline = pipelines({"Q:": "fine</s>"})

    def bad(ids: object, logits: object) -> None:
        raise RuntimeError("my own fault")

    failed = list(start(pipeline, request_id="bad", logits_processors=(bad,)))
    assert len(failed) == 1
    assert isinstance(failed[0], Failed)
    assert "my own fault" in f"{failed[0].error} {failed[0].error.__cause__}"
    assert text_of(list(start(pipeline))) == "fine"


def test_a_closed_pipeline_says_so(pipelines):
    pipeline = pipelines({})
    stream = start(pipeline, max_tokens=400)
    pipeline.close()
    assert list(stream)[-1].reason == "cancelled"
    with pytest.raises(EngineDeadError):
        start(pipeline)


def test_an_id_in_use_is_refused(pipelines):
    pipeline = pipelines({}, model={"step_delay_s": 0.01})
    first = start(pipeline, request_id="r", max_tokens=400)
    for again in (
        lambda p: start(p, request_id="r"),
        lambda p: list(p.start_all([p.prepare_prompt("x", GREEDY, request_id="r")])),
    ):
        with pytest.raises(InvalidRequestError, match="in use"):
            again(pipeline)
    assert isinstance(next(first), PartStart)
    assert [next(first).text for _ in range(10)] == ["."] * 10  # the refusal did not cancel the first
    first.cancel()


async def test_many_async_consumers_get_their_own_answers(pipelines):
    pipeline = pipelines({f"{i:02}:": f"answer {i}</s>" for i in range(24)})

    async def ask(i: int) -> str:
        return text_of([event async for event in start(pipeline, f"{i:02}:", f"r{i}")])

    assert await asyncio.gather(*map(ask, range(24))) == [f"answer {i}" for i in range(24)]


async def test_news_of_a_step_reach_the_loop_in_one_callback():
    """However many requests have news, the engine thread enters the loop once until the loop has run."""
    loop = asyncio.get_running_loop()
    calls: list[object] = []
    real = loop.call_soon_threadsafe
    loop.call_soon_threadsafe = lambda callback: calls.append(real(callback))  # type: ignore[method-assign]
    woken: list[int] = []

    class Inbox:
        def __init__(self, number: int) -> None:
            self.number = number

        def wake(self) -> None:
            woken.append(self.number)

    waker = LoopWaker(loop)
    thread = threading.Thread(target=lambda: [waker.post(Inbox(i)) for i in range(50)])
    thread.start()
    thread.join()  # the loop cannot run meanwhile
    assert len(calls) == 1
    await asyncio.sleep(0)
    assert woken == list(range(50))
    waker.post(Inbox(50))
    assert len(calls) == 2


def test_news_for_a_loop_that_is_closed_are_dropped():
    loop = asyncio.new_event_loop()
    waker = LoopWaker(loop)
    loop.close()
    waker.post(object())  # type: ignore[arg-type]


def test_a_group_yields_the_events_of_all_and_starts_on_iteration(pipelines):
    pipeline = pipelines({"1:": "one</s>", "2:": "two</s>"})
    prepared = [pipeline.prepare_prompt(p, GREEDY, request_id=p) for p in ("1:", "2:")]
    group = pipeline.start_all(prepared)
    texts = ["", ""]
    for index, event in group:
        if isinstance(event, PartDelta):
            texts[index] += event.text
    assert texts == ["one", "two"]
    assert [answer.usage.completion_tokens for answer in group.answers] == [4, 4]


def test_leaving_a_group_cancels_all_of_it(pipelines):
    pipeline = pipelines({}, model={"step_delay_s": 0.002})
    prepared = [
        pipeline.prepare_prompt("x", {**GREEDY, "max_tokens": 400}, request_id=f"r{i}") for i in range(5)
    ]
    for _ in pipeline.start_all(prepared):
        break
    gc.collect()
    wait_until(lambda: pool_is_idle(pipeline.engine), timeout_s=1.0)
