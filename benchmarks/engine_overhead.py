"""Time the engine itself takes for a decode step: scheduling, batch arrays, sampling, events, without the model's arithmetic.

    python benchmarks/engine_overhead.py [--vocab 1024] [--steps 2000]

A decoder that does nothing stands in for the model. Measured is the processor time of the thread, so that other work on the machine
counts little. One JSON line a batch size: the median over `--samples` runs, with the fastest and the slowest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np

from edgewise.core.requests import GenerationRequest, TokenEvent
from edgewise.core.sampling import SamplingParams
from edgewise.core.spec import DecoderSpec
from edgewise.decoder.batch import Batch, StepOutput
from edgewise.engine.config import EngineConfig
from edgewise.engine.core import EngineCore
from edgewise.engine.sequence import ActiveRequest

PROMPT_LEN = 100


class NullDecoder:
    """Answers every step with the same logits."""

    block_size = 32
    num_blocks = 4096
    max_rows = 512
    max_outputs = 64

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.spec = DecoderSpec("null", vocab_size, 1, 1 << 20, (), "rms", 1e-5, True)
        self._logits = (
            np.random.default_rng(0).standard_normal((self.max_outputs, vocab_size)).astype(np.float32)
        )

    def step(self, batch: Batch) -> StepOutput:
        return StepOutput(self._logits[: len(batch.output_rows)])

    def cancel_step(self) -> None:
        pass

    def copy_blocks(self, sources: object, targets: object) -> None:
        pass

    def close(self) -> None:
        pass


def ignore(event: TokenEvent) -> None:
    pass


def step_us(batch: int, vocab_size: int, num_steps: int) -> float:
    """Microseconds of processor time of one decode step of `batch` sequences."""
    config = EngineConfig(
        max_model_len=PROMPT_LEN + num_steps + 10, max_num_seqs=batch, max_num_batched_tokens=512
    )
    core = EngineCore(NullDecoder(vocab_size), config)
    for i in range(batch):
        prompt = np.random.default_rng(i).integers(0, vocab_size, PROMPT_LEN).astype(np.int32)
        params = SamplingParams(temperature=0.0, max_tokens=num_steps + 10)
        core.add(ActiveRequest(GenerationRequest(str(i), prompt, params), ignore, seed=i, order=i))
    while core.scheduler.num_running < batch or any(seq.num_pending > 1 for seq in core.scheduler.running()):
        core.step()
    began = time.thread_time()
    for _ in range(num_steps):
        core.step()
    return (time.thread_time() - began) / num_steps * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocab", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=5)
    args = parser.parse_args()
    for batch in (1, 4, 8, 16):
        step_us(batch, args.vocab, 50)
        times = [step_us(batch, args.vocab, args.steps) for _ in range(args.samples)]
        print(
            json.dumps(
                {
                    "figure": "engine_overhead", "batch": batch, "value": round(statistics.median(times), 1),
                    "unit": "us/step", "min": round(min(times), 1), "max": round(max(times), 1),
                }
            )
        )  # fmt: skip


if __name__ == "__main__":
    main()
