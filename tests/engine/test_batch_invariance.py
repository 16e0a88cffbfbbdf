"""The native decoder under the engine: tokens and log probabilities do not depend on company, chunks, threads, cache or preemption."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgewise.build import EngineDir, build_engine_dir, open_engine_dir
from edgewise.core.requests import GenerationRequest
from edgewise.decoder.decoder import Decoder, DecoderConfig
from edgewise.kernels.native import layout_of
from tests.engine.running import Recorder, Runner, make_request
from tests.support.examples import examples
from tests.support.models import SMOLLM2, model_path
from tests.support.tiny_gguf import write_tiny_gguf

BLOCK = 32
WINDOW = 6 * BLOCK
TINY = {"llama": "Q4_1", "qwen2": "Q8_0", "gemma3": "F16"}


@dataclass(frozen=True)
class Job:
    """One request: its prompt is cut from a fixed text, so that jobs share beginnings."""

    start: int
    prompt_len: int
    max_tokens: int
    seed: int | None  # None: greedy
    prompt_logprobs: bool
    step: int  # when it arrives

    def request(self, vocab_size: int) -> GenerationRequest:
        text = np.random.default_rng(5).integers(3, vocab_size, 400)
        options: dict[str, Any] = {"prompt_logprobs": 1} if self.prompt_logprobs else {}
        if self.seed is not None:
            options |= {"temperature": 1.2, "top_p": 0.95, "seed": self.seed}
        prompt = text[self.start : self.start + self.prompt_len].tolist()
        return make_request(prompt, max_tokens=self.max_tokens, logprobs=2, **options)


jobs = st.builds(
    Job,
    start=st.sampled_from([0, 0, 0, 100]),
    prompt_len=st.integers(1, 150),
    max_tokens=st.integers(1, 30),
    seed=st.one_of(st.none(), st.integers(0, 3)),
    prompt_logprobs=st.sampled_from([False, False, True]),
    step=st.integers(0, 10),
)
surroundings = st.fixed_dictionaries(
    {
        "threads": st.integers(1, 3),
        "num_blocks": st.integers(6, 30),  # 6 hold one sequence: nearly everything is preempted
        "max_num_seqs": st.integers(1, 16),
        "max_num_batched_tokens": st.integers(16, 200),
        "enable_prefix_caching": st.booleans(),
    }
)


@contextmanager
def running(engine_dir: EngineDir, *, threads: int, num_blocks: int, **config: Any) -> Iterator[Runner]:
    decoder = Decoder(
        engine_dir, DecoderConfig(num_blocks=num_blocks, max_rows=200, max_outputs=32, threads=threads)
    )
    try:
        yield Runner(decoder, max_model_len=WINDOW, **config)  # type: ignore[arg-type]
    finally:
        decoder.close()


def facts(recorder: Recorder) -> tuple[Any, ...]:
    prompt = [event.prompt_logprobs for event in recorder.events if event.prompt_logprobs is not None]
    return recorder.tokens(), recorder.logprobs(), prompt


class Alone:
    """Results of jobs run one at a time, whole, on one thread, without a cache."""

    def __init__(self, engine_dir: EngineDir) -> None:
        self.engine_dir = engine_dir
        self._known: dict[Job, tuple[Any, ...]] = {}

    def __call__(self, job: Job) -> tuple[Any, ...]:
        job = replace(job, step=0)
        if job not in self._known:
            options = {"max_num_batched_tokens": 200, "enable_prefix_caching": False}
            with running(self.engine_dir, threads=1, num_blocks=8, **options) as runner:
                (recorder,) = runner.run(job.request(self.engine_dir.spec.vocab_size))
            self._known[job] = facts(recorder)
        return self._known[job]


def check(alone: Alone, plan: list[Job], surrounding: dict[str, Any]) -> None:
    vocab_size = alone.engine_dir.spec.vocab_size
    with running(alone.engine_dir, **surrounding) as runner:
        recorders: list[Recorder] = []
        for step in range(11):
            arriving = [job for job in plan if job.step == step]
            recorders += [runner.add(job.request(vocab_size)) for job in arriving]
            runner.core.step()
        runner.run()
        runner.assert_nothing_leaks()
    in_order = sorted(plan, key=lambda job: job.step)
    for job, recorder in zip(in_order, recorders, strict=True):
        assert facts(recorder) == alone(job)


@functools.cache
def tiny(folder: Path, architecture: str) -> Alone:
    source = write_tiny_gguf(
        folder / f"{architecture}.gguf", architecture=architecture, dtype=TINY[architecture]
    )
    out = folder / architecture
    build_engine_dir(source, out, layout=layout_of())
    return Alone(open_engine_dir(out, layout=layout_of()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


@pytest.mark.slow
@pytest.mark.parametrize("architecture", TINY)
@given(plan=st.lists(jobs, min_size=1, max_size=16), surrounding=surroundings)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
def test_tiny_models(folder: Path, architecture: str, plan, surrounding) -> None:
    check(tiny(folder, architecture), plan, surrounding)


@functools.cache
def smollm2(folder: Path) -> Alone:
    build_engine_dir(model_path(SMOLLM2), folder / "smollm2", layout=layout_of())
    return Alone(open_engine_dir(folder / "smollm2", layout=layout_of()))


@pytest.mark.model
@pytest.mark.slow
@given(plan=st.lists(jobs, min_size=2, max_size=16), surrounding=surroundings)
@settings(max_examples=examples(4), deadline=None, suppress_health_check=list(HealthCheck))
def test_smollm2(folder: Path, plan, surrounding) -> None:
    check(smollm2(folder), plan, surrounding)
