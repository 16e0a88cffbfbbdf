"""AsyncLLM over the real engine and a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from edgewise import LLM, AsyncLLM, EngineDeadError, InvalidRequestError, SamplingParams
from tests.support.pipelines import make_pipeline
from tests.support.waiting import pool_is_idle, wait_until

GREEDY = SamplingParams(temperature=0, max_tokens=20)
LONG = GREEDY.with_changes(max_tokens=450)
ANSWERS = {"1:": "one</s>", "2:": "two</s>", "assistant\n": "hi there<|im_end|>"}


@pytest.fixture
async def make_llm() -> AsyncIterator[Callable[..., AsyncLLM]]:
    made: list[AsyncLLM] = []

    def make(*args: object, **kwargs: object) -> AsyncLLM:
        made.append(AsyncLLM.from_pipeline(make_pipeline(*args, **kwargs)))
        return made[-1]

    yield make
    for llm in made:
        await llm.close()


def idle(llm: AsyncLLM) -> bool:
    return pool_is_idle(llm.pipeline.engine)


async def test_outputs_are_those_of_llm(make_llm):
    llm = make_llm(ANSWERS)
    twin = LLM.from_pipeline(make_pipeline(ANSWERS))
    for prompts in ("1:", ["2:", list(b"1:")], [{"role": "user", "content": "x"}]):
        got, expected = await llm.generate(prompts, GREEDY), twin.generate(prompts, GREEDY)
        assert [(o.text, o.token_ids, o.finish_reason, o.usage) for o in got] == [
            (o.text, o.token_ids, o.finish_reason, o.usage) for o in expected
        ]
    assert (await llm.chat([{"role": "user", "content": "x"}], GREEDY))[0].text == "hi there"
    twin.close()


async def test_a_stream_gives_the_deltas_of_llm(make_llm):
    llm = make_llm(ANSWERS)
    deltas = [delta async for delta in llm.generate_stream("1:", GREEDY)]
    assert "".join(delta.text for delta in deltas) == "one"
    assert deltas[-1].finished and deltas[-1].finish_reason == "stop"
    assert [delta.text async for delta in llm.stream([{"role": "user", "content": "x"}], GREEDY)][:2] == [
        "h",
        "i",
    ]


async def test_many_at_once(make_llm):
    llm = make_llm(ANSWERS)
    got = await asyncio.gather(*(llm.generate(f"{1 + i % 2}:", GREEDY) for i in range(40)))
    assert [outputs[0].text for outputs in got] == ["one", "two"] * 20


async def test_bad_requests_raise_and_leave_nothing(make_llm):
    llm = make_llm(ANSWERS)
    with pytest.raises(InvalidRequestError):
        await llm.generate([])
    with pytest.raises(InvalidRequestError):
        await llm.generate(["1:", ""], GREEDY)
    with pytest.raises(InvalidRequestError):
        async for _ in llm.generate_stream("", GREEDY):
            pass
    assert idle(llm)


async def test_abort_ends_a_request_by_its_id(make_llm):
    llm = make_llm({}, model={"step_delay_s": 0.005})
    task = asyncio.create_task(llm.generate("x", LONG, request_id="mine"))
    await asyncio.sleep(0.05)
    await llm.abort("mine")
    (output,) = await asyncio.wait_for(task, 1)
    assert (output.request_id, output.finish_reason) == ("mine", "cancelled")
    await llm.abort("nobody")


async def test_cancelling_a_task_cancels_its_requests(make_llm):
    llm = make_llm({}, model={"step_delay_s": 0.005})
    task = asyncio.create_task(llm.generate(["x", "y", "z"], LONG))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_until, lambda: idle(llm), timeout_s=0.5)


async def test_leaving_a_stream_cancels_its_request(make_llm):
    llm = make_llm({}, model={"step_delay_s": 0.005})
    stream = llm.generate_stream("x", LONG)
    async for _ in stream:
        break
    await stream.aclose()
    await asyncio.to_thread(wait_until, lambda: idle(llm), timeout_s=0.5)


async def test_context_manager_and_close():
    async with AsyncLLM.from_pipeline(make_pipeline(ANSWERS)) as llm:
        assert (await llm.generate("1:", GREEDY))[0].text == "one"
    await llm.close()
    with pytest.raises(EngineDeadError, match="this AsyncLLM is closed"):
        await llm.generate("1:")


def test_one_object_serves_loops_one_after_another():
    llm = AsyncLLM.from_pipeline(make_pipeline(ANSWERS))
    for _ in range(3):
        assert asyncio.run(llm.generate("1:", GREEDY))[0].text == "one"
    asyncio.run(llm.close())
