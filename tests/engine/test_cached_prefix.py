"""Asking how much of a prompt is cached: true where nothing else runs, and safe beside an engine that changes its tree."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from edgewise.core.requests import GenerationRequest
from edgewise.core.sampling import SamplingParams
from edgewise.engine import Engine, EngineConfig
from tests.support.scripted_model import ScriptedModel


def request(name: str, prompt: list[int], **more: object) -> GenerationRequest:
    sampling = SamplingParams(temperature=0, max_tokens=2)
    return GenerationRequest(name, np.array(prompt, np.int32), sampling, **more)  # type: ignore[arg-type]


def run(engine: Engine, wanted: GenerationRequest) -> int:
    """Run a request to its end; how many of its tokens were cached."""
    ended = threading.Event()
    cached = [0]

    def sink(event: object) -> None:
        cached[0] = max(cached[0], event.num_cached_tokens)  # type: ignore[attr-defined]
        if event.finish_reason is not None:  # type: ignore[attr-defined]
            ended.set()

    engine.submit(wanted, sink)
    assert ended.wait(10)
    return cached[0]


def new_engine(*, num_blocks: int = 64, caching: bool = True) -> Engine:
    decoder = ScriptedModel(vocab_size=32, num_blocks=num_blocks)
    config = EngineConfig(
        max_model_len=64, max_num_seqs=4, max_num_batched_tokens=64, enable_prefix_caching=caching
    )
    return Engine(decoder, config)


@pytest.mark.parametrize("shared", [0, 1, 4, 7, 8, 21])
def test_it_is_what_the_request_then_reports(shared: int):
    engine = new_engine()
    first = list(range(1, 22))
    run(engine, request("a", first))
    second = request("b", [*first[:shared], *[30] * 9])
    asked = engine.cached_prefix_len(second)
    assert asked == run(engine, second) == shared
    assert engine.cached_prefix_len(request("c", first)) == len(first) - 1, (
        "the last token is always computed"
    )
    engine.close()


def test_tenants_wanted_outputs_and_a_cache_turned_off():
    engine = new_engine()
    prompt = list(range(1, 22))
    run(engine, request("a", prompt, cache_salt="x"))
    assert engine.cached_prefix_len(request("b", prompt)) == 0
    assert engine.cached_prefix_len(request("c", prompt, cache_salt="x")) == 20
    assert engine.cached_prefix_len(request("d", prompt, cache_salt="x", outputs_from=5)) == 5
    engine.close()
    off = new_engine(caching=False)
    run(off, request("a", prompt))
    assert off.cached_prefix_len(request("b", prompt)) == 0
    off.close()


def test_asking_beside_a_busy_engine_never_fails():
    """Few blocks, so that the engine reclaims and records all the time."""
    engine = new_engine(num_blocks=24)
    rng = np.random.default_rng(7)
    prompts = [[int(token) for token in rng.integers(1, 4, 20)] for _ in range(40)]
    failures: list[BaseException] = []
    done = threading.Event()

    def ask() -> None:
        try:
            while not done.is_set():
                for prompt in prompts:
                    assert 0 <= engine.cached_prefix_len(request("?", prompt)) < len(prompt)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    for i, prompt in enumerate(prompts * 2):
        run(engine, request(str(i), prompt))
    done.set()
    thread.join(10)
    engine.close()
    assert not failures
