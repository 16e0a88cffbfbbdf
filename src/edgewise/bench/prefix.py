"""Time to first token with and without a cached prefix, through the whole engine."""

from __future__ import annotations

import time

from edgewise.core.sampling import SamplingParams
from edgewise.llm import LLM


def prefix_hit_seconds(
    model: str, *, threads: int, isa: str, cached: int, new: int, samples: int
) -> tuple[list[float], list[float]]:
    """(hot, cold) seconds of one-token answers to prompts of cached + new tokens. Every pair uses a prompt of its own."""
    hot: list[float] = []
    cold: list[float] = []
    with LLM(model, threads=threads, isa=isa) as llm:
        vocab = llm.tokenizer.vocab_size - 200
        one = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
        for sample in range(samples):
            prefix = [100 + (i * 7919 + sample * 31337) % vocab for i in range(cached)]
            for times, tail in ((cold, 1), (hot, 2)):
                prompt = prefix + [100 + (i * 13 + tail) % vocab for i in range(new)]
                start = time.perf_counter()
                llm.generate(prompt, one)
                times.append(time.perf_counter() - start)
    return hot, cold
