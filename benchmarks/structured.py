"""What structured output costs and what jump-forward gives, on a real model.

    python benchmarks/structured.py [--model smollm2-135m-instruct] [--samples 7]

overhead: time of a decode step with a grammar over that without, same contexts, batch 1 and 8, for a JSON schema and for free text in
which a tool call would be bound. It is given twice: by the clock, and as processor time of the engine thread outside the decoder, which
other work on the machine hardly disturbs, over the fastest steps. jump-forward: tokens/s with it over tokens/s without, on a
schema with long keys; the tokens are checked to be the same. Runs are paired A B A B within one process; a figure is the median of the
pairs' ratios. One JSON line a figure.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgewise.build import engine_dir_for
from edgewise.core import grammar as g
from edgewise.core.requests import GenerationRequest, TokenConstraint, TokenEvent
from edgewise.core.sampling import SamplingParams
from edgewise.decoder.batch import Batch, StepOutput
from edgewise.decoder.decoder import BLOCK_SIZE, Decoder, DecoderConfig
from edgewise.engine.config import EngineConfig
from edgewise.engine.core import EngineCore
from edgewise.engine.sequence import ActiveRequest
from edgewise.grammar import GrammarCompiler
from edgewise.hardware import read_hardware
from edgewise.kernels.native import layout_of
from edgewise.text.tokenizer import Tokenizer

PROMPT = "Write a long list of people with their names, cities, ages and hobbies as JSON:\n"
LONG_KEYS = (
    "average_daily_temperature_in_degrees_celsius", "probability_of_precipitation_in_percent",
    "maximum_wind_speed_in_kilometres_per_hour", "number_of_hours_with_direct_sunshine",
    "relative_humidity_at_ground_level_in_percent", "is_travel_on_mountain_roads_recommended",
)  # fmt: skip

Make = Callable[[], TokenConstraint] | None


@dataclass
class Run:
    """Tokens of every sequence, and the seconds of each decode step."""

    tokens: list[list[int]]
    steps_s: list[float] = field(default_factory=list)
    engine_s: list[float] = field(
        default_factory=list
    )  # processor time of this thread, the decoder's left out
    total_s: float = 0.0

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.tokens))


class TimedDecoder(Decoder):
    """A decoder that counts the processor time its caller's thread spends in it."""

    thread_s = 0.0

    def step(self, batch: Batch) -> StepOutput:
        began = time.thread_time()
        output = super().step(batch)
        self.thread_s += time.thread_time() - began
        return output


class Bench:
    """One model, an engine with and one without jump-forward over the same decoder. They are never used at once."""

    def __init__(self, model: str, threads: int) -> None:
        engine_dir = engine_dir_for(model, layout=layout_of("auto"))
        config = DecoderConfig(num_blocks=16384 // BLOCK_SIZE, max_rows=512, max_outputs=64, threads=threads)
        self.decoder = TimedDecoder(engine_dir, config)
        self.tokenizer = Tokenizer.load(engine_dir.path)
        self.compiler = GrammarCompiler(self.tokenizer, vocab_size=self.decoder.vocab_size)
        self.cores = {
            jump: EngineCore(
                self.decoder,
                EngineConfig(max_model_len=2048, enable_prefix_caching=False, enable_jump_forward=jump),
            )
            for jump in (True, False)
        }
        self._ids = itertools.count()

    def run(
        self, make: Make, *, batch: int = 1, max_tokens: int = 128, jump: bool = False, seed: int = 0, temperature: float = 1.0
    ) -> Run:  # fmt: skip
        """Without a grammar, and with one that could end, the end is ignored: every run is as long as it may be."""
        core = self.cores[jump]
        run = Run([[] for _ in range(batch)])
        prompt = np.array(self.tokenizer.encode(PROMPT), np.int32)
        for i in range(batch):
            params = SamplingParams(
                temperature=temperature, max_tokens=max_tokens, seed=seed + i, ignore_eos=make is None
            )
            request = GenerationRequest(
                str(next(self._ids)), prompt, params, frozenset(self.tokenizer.eos_token_ids), constraint=make
            )
            core.add(ActiveRequest(request, self._sink(run.tokens[i]), seed=seed + i, order=i))
        began = time.perf_counter()
        while core.has_work:
            start, cpu, self.decoder.thread_s = time.perf_counter(), time.thread_time(), 0.0
            core.step()
            run.steps_s.append(time.perf_counter() - start)
            run.engine_s.append(time.thread_time() - cpu - self.decoder.thread_s)
        run.total_s = time.perf_counter() - began
        del run.steps_s[:1], run.engine_s[:1]  # the prompt's
        return run

    @staticmethod
    def _sink(tokens: list[int]) -> Callable[[TokenEvent], None]:
        def sink(event: TokenEvent) -> None:
            assert event.error is None, event.error
            tokens.extend(event.token_ids)

        return sink


def people() -> g.Json:
    """A schema whose answers never end within a run: mostly texts, as real ones are."""
    person = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 60},
            "city": {"type": "string", "pattern": "^[A-Z][a-z]{2,20}$"},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "hobbies": {"type": "array", "items": {"enum": ["chess", "rowing", "music"]}, "minItems": 1, "maxItems": 3},
        },
        "required": ["name", "city", "age", "hobbies"],
        "additionalProperties": False,
    }  # fmt: skip
    return g.Json({"type": "array", "items": person, "minItems": 1000})


def tools() -> g.FreeText:
    """Free text in which `<tool_call>` would bind to one of twenty tools."""
    calls = [
        g.Sequence((g.Text(f'{{"name": "tool_{i}", "arguments": '), g.Json({"type": "object"}), g.Text("}")))
        for i in range(20)
    ]
    rule = g.Sequence((g.Text("<tool_call>\n"), g.OneOf(tuple(calls)), g.Text("\n</tool_call>")))
    return g.FreeText((g.Triggered("<tool_call>", rule),))


def long_keys() -> g.Json:
    day = {
        "type": "object",
        "properties": {key: {"type": "integer", "minimum": 0, "maximum": 99} for key in LONG_KEYS},
        "required": list(LONG_KEYS),
        "additionalProperties": False,
    }
    return g.Json({"type": "array", "items": day, "minItems": 1000})


def report(figure: str, ratios: Sequence[float], **details: object) -> None:
    print(
        json.dumps(
            {
                "figure": figure, **details, "value": round(statistics.median(ratios), 4), "low": round(min(ratios), 4),
                "high": round(max(ratios), 4), "samples": len(ratios),
            }
        ),
        flush=True,
    )  # fmt: skip


def overhead(bench: Bench, body: g.Rule | g.FreeText, name: str, batch: int, samples: int) -> None:
    make = bench.compiler.compile(g.Constraint(body)).make
    by_clock, by_processor, added_us = [], [], []
    temperature = (
        1.0 if name == "json_schema" else 0.0
    )  # free text is the same with and without: greedy ends at the same place
    for sample in range(-1, samples):
        bound, free = (
            bench.run(one, batch=batch, seed=sample, temperature=temperature) for one in (make, None)
        )
        if sample < 0:
            continue
        length = min(len(bound.steps_s), len(free.steps_s))
        by_clock.append(sum(bound.steps_s[:length]) / sum(free.steps_s[:length]))
        added = (sum(bound.engine_s[:length]) - sum(free.engine_s[:length])) / length
        step_s = statistics.quantiles(free.steps_s[:length], n=10)[0]
        by_processor.append(1 + added / step_s)
        added_us.append(added * 1e6)
    details = {"grammar": name, "batch": batch}
    report("constrained_decoding_by_clock", by_clock, **details)
    report(
        "constrained_decoding_by_processor",
        by_processor,
        **details,
        added_us=round(statistics.median(added_us)),
    )


def jump_forward(bench: Bench, samples: int) -> None:
    make = bench.compiler.compile(g.Constraint(long_keys())).make
    ratios = []
    for sample in range(-1, samples):
        jumping = bench.run(make, max_tokens=256, jump=True, seed=sample)
        stepping = bench.run(make, max_tokens=256, jump=False, seed=sample)
        assert jumping.tokens == stepping.tokens, "jump-forward changed the answer"
        if sample >= 0:
            ratios.append((jumping.num_tokens / jumping.total_s) / (stepping.num_tokens / stepping.total_s))
    report(
        "jump_forward_speedup", ratios, steps_saved=round(1 - len(jumping.steps_s) / len(stepping.steps_s), 3)
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--threads", type=int, default=read_hardware().usable_cpus)
    arguments = parser.parse_args()
    bench = Bench(arguments.model, arguments.threads)
    for batch in (1, 8):
        overhead(bench, people(), "json_schema", batch, arguments.samples)
        overhead(bench, tools(), "tools", batch, arguments.samples)
    jump_forward(bench, arguments.samples)


if __name__ == "__main__":
    main()
