"""The Python API over the real SmolLM2-135M."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from edgewise import LLM, AsyncLLM, ConfigError, ContextLengthError, InvalidRequestError, SamplingParams
from tests.support.models import model_path
from tests.support.waiting import pool_is_idle, wait_until

pytestmark = pytest.mark.model

GREEDY = SamplingParams(temperature=0, max_tokens=16)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(model_path()) as loaded:
        yield loaded


def test_it_knows_the_capital_of_france(llm: LLM):
    (output,) = llm.generate("The capital of France is", GREEDY)
    assert "Paris" in output.text
    assert output.text == llm.tokenizer.decode(output.token_ids)


def test_a_chat_ends_by_itself(llm: LLM):
    messages = [{"role": "user", "content": "Say hello."}]
    (output,) = llm.chat(messages, GREEDY.with_changes(max_tokens=200))
    assert output.finish_reason == "stop"
    assert output.text.strip()
    streamed = "".join(
        delta.text for delta in llm.generate_stream(messages, GREEDY.with_changes(max_tokens=200))
    )
    assert streamed == output.text


def test_together_as_alone_bit_for_bit(llm: LLM):
    prompts = [f"Number {n}: the story of" for n in range(12)]
    params = [SamplingParams(seed=n, temperature=0.9, max_tokens=8 + n, logprobs=2) for n in range(12)]
    alone = [llm.generate(prompt, one)[0] for prompt, one in zip(prompts, params, strict=True)]
    together = llm.generate(prompts, params)
    for a, b in zip(alone, together, strict=True):
        assert a.token_ids == b.token_ids
        assert a.logprobs == b.logprobs


def test_a_cached_prefix_changes_nothing_but_the_time(llm: LLM):
    prompt = "Once upon a time there was a small machine that " * 20
    first, second = (llm.generate(prompt, GREEDY.with_changes(logprobs=1))[0] for _ in range(2))
    assert second.num_cached_tokens > first.num_cached_tokens
    assert second.num_cached_tokens >= second.prompt_tokens - 2
    assert (first.token_ids, first.logprobs) == (second.token_ids, second.logprobs)


def test_stop_strings_cut_where_whole_text_would(llm: LLM):
    (whole,) = llm.generate("1 2 3 4", GREEDY.with_changes(max_tokens=32))
    stop = whole.text[len(whole.text) // 2 :][:3]
    (cut,) = llm.generate("1 2 3 4", GREEDY.with_changes(max_tokens=32, stop=[stop]))
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.outputs[0].stop_reason == stop


def test_a_prompt_too_long_is_refused_with_both_numbers(llm: LLM):
    ids = [5] * llm.max_model_len
    with pytest.raises(
        ContextLengthError, match=rf"maximum context length is {llm.max_model_len} tokens.*{len(ids)} tokens"
    ):
        llm.generate(ids, GREEDY)
    with pytest.raises(ContextLengthError):
        llm.generate("x" * (16 << 20), GREEDY)
    with pytest.raises(InvalidRequestError):
        llm.generate([[llm.tokenizer.vocab_size]], GREEDY)


def test_32_threads_times_50_calls_equal_their_serial_results(llm: LLM):
    params = [SamplingParams(seed=n, temperature=1.0, max_tokens=1 + n % 3) for n in range(50)]
    serial = [llm.generate(f"Item {n}:", one)[0].token_ids for n, one in enumerate(params)]

    def run(_: int) -> list[tuple[int, ...]]:
        return [llm.generate(f"Item {n}:", one)[0].token_ids for n, one in enumerate(params)]

    with ThreadPoolExecutor(32) as pool:
        for result in pool.map(run, range(32)):
            assert result == serial


def test_ctrl_c_returns_within_a_second_with_the_pool_empty(llm: LLM):
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    started_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["Tell me a long story."] * 4, SamplingParams(max_tokens=4000, ignore_eos=True))
    assert time.monotonic() - started_s < 1.3
    wait_until(lambda: pool_is_idle(llm.pipeline.engine), timeout_s=0.1)


async def test_async_gives_the_same(llm: LLM):
    prompts = ["The sky is", "Water is"]
    async with await asyncio.to_thread(AsyncLLM, model_path(), max_model_len=512) as twin:
        got = [output.text for output in await twin.generate(prompts, GREEDY)]
    assert got == [output.text for output in llm.generate(prompts, GREEDY)]


def test_an_engine_directory_loads_as_it_is(llm: LLM, tmp_path):
    from edgewise.build import build_engine_dir
    from edgewise.kernels.native import layout_of

    built = build_engine_dir(model_path(), tmp_path / "engine", layout=layout_of("auto"))
    with LLM(engine_dir=built.path, max_model_len=512) as other:
        assert other.max_model_len == 512
        assert (
            other.generate("The sky is", GREEDY)[0].token_ids
            == llm.generate("The sky is", GREEDY)[0].token_ids
        )
    with pytest.raises(ConfigError, match="max_model_len"):
        LLM(engine_dir=built.path, max_model_len=10_000_000)
