"""Thousands of requests, a third of them given up, leave nothing behind."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import pytest

from edgewise import LLM, SamplingParams
from tests.support.pipelines import make_pipeline
from tests.support.waiting import pool_is_idle, wait_until

GROUP = 25


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def run_requests(llm: LLM, count: int, rng: random.Random) -> None:
    """Groups of streams; in each, a third is dropped before, during or after its first delta."""
    for first in range(0, count, GROUP):
        streams = [
            llm.generate_stream(f"request {first + i}", SamplingParams(seed=i, max_tokens=1 + i % 7))
            for i in range(GROUP)
        ]
        while streams:
            stream = streams.pop(rng.randrange(len(streams)))
            if rng.random() < 1 / 3:
                if rng.random() < 0.5:
                    next(stream, None)
            else:
                assert list(stream)[-1].finished
            del stream


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_five_thousand_requests_with_a_third_cancelled_leave_memory_flat():
    with LLM.from_pipeline(make_pipeline(num_blocks=400, max_model_len=64)) as llm:
        rng = random.Random(5)
        run_requests(llm, 500, rng)
        gc.collect()
        before_bytes, before_objects = resident_bytes(), len(gc.get_objects())
        run_requests(llm, 5000, rng)
        wait_until(lambda: pool_is_idle(llm.pipeline.engine))
        gc.collect()
        assert len(gc.get_objects()) - before_objects < 2000
        assert resident_bytes() - before_bytes < 16 << 20
