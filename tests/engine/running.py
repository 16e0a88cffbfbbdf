"""Requests and sinks for engine tests, and runs of the core by hand: no threads, so every run is the same."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewise.core.requests import GenerationRequest, TokenEvent, TokenLogprob
from edgewise.core.sampling import SamplingParams
from edgewise.engine.config import EngineConfig
from edgewise.engine.core import EngineCore
from edgewise.engine.sequence import ActiveRequest
from tests.support.scripted_model import ScriptedModel

_ids = itertools.count()

REQUEST_FIELDS = (
    "eos_token_ids", "priority", "cache_salt", "cache_output", "cache_borders", "outputs_from", "bad_word_ids", "constraint", "arrival_s",
)  # fmt: skip


def make_request(prompt: Sequence[int], request_id: str | None = None, **options: Any) -> GenerationRequest:
    """`options`: fields of the request or of its sampling parameters, which are greedy unless given."""
    fields = {name: options.pop(name) for name in REQUEST_FIELDS if name in options}
    options = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, **options}
    return GenerationRequest(
        request_id=request_id or f"r{next(_ids)}",
        prompt_token_ids=np.array(prompt, np.int32),
        sampling=SamplingParams(**options),
        **fields,
    )


@dataclass
class Recorder:
    """A sink that keeps everything and checks the order of events. `ended` raises what was wrong: the engine catches what sinks raise."""

    num_choices: int = 1
    events: list[TokenEvent] = field(default_factory=list)
    finishes: dict[int, TokenEvent] = field(default_factory=dict)
    aborted: TokenEvent | None = None
    faults: list[str] = field(default_factory=list)

    def __call__(self, event: TokenEvent) -> None:
        if self.aborted is not None:
            self.faults.append(f"{event} after the end of the request")
        if event.choice in self.finishes:
            self.faults.append(f"{event} after the end of its choice")
        if event.logprobs is not None and len(event.logprobs) != len(event.token_ids):
            self.faults.append(f"{event} has not one log probability a token")
        self.events.append(event)
        if event.finish_reason in ("cancelled", "error"):
            self.aborted = event
        elif event.finish_reason is not None:
            self.finishes[event.choice] = event

    @property
    def ended(self) -> bool:
        assert not self.faults, self.faults
        return self.aborted is not None or len(self.finishes) == self.num_choices

    def tokens(self, choice: int = 0) -> list[int]:
        return [token for event in self.events if event.choice == choice for token in event.token_ids]

    def logprobs(self, choice: int = 0) -> list[TokenLogprob]:
        return [entry for event in self.events if event.choice == choice for entry in event.logprobs or ()]

    def prompt_logprobs(self) -> tuple[TokenLogprob | None, ...]:
        (found,) = [event.prompt_logprobs for event in self.events if event.prompt_logprobs is not None]
        return found

    @property
    def reason(self) -> str | None:
        return (
            self.aborted.finish_reason
            if self.aborted
            else self.finishes[0].finish_reason
            if 0 in self.finishes
            else None
        )

    @property
    def error(self) -> Exception | None:
        return self.aborted.error if self.aborted else None

    @property
    def num_cached_tokens(self) -> int:
        return self.events[-1].num_cached_tokens


class Runner:
    """A core, its scripted model, and a recorder for each request."""

    def __init__(self, model: ScriptedModel | None = None, **config: Any) -> None:
        self.model = model or ScriptedModel()
        config = {"max_model_len": 64, "max_num_seqs": 4, "max_num_batched_tokens": 32, **config}
        self.core = EngineCore(self.model, EngineConfig(**config))
        self._seeds = itertools.count(1)
        self._order = itertools.count()

    def add(self, request: GenerationRequest) -> Recorder:
        recorder = Recorder(request.sampling.n)
        seed = request.sampling.seed if request.sampling.seed is not None else next(self._seeds)
        self.core.add(ActiveRequest(request, recorder, seed=seed, order=next(self._order)))
        return recorder

    def run(self, *requests: GenerationRequest, max_steps: int = 10_000) -> list[Recorder]:
        """Add requests and run until nothing is left."""
        recorders = [self.add(request) for request in requests]
        for _ in range(max_steps):
            if not self.core.step():
                break
        else:
            raise AssertionError("the engine does not come to an end")
        assert all(recorder.ended for recorder in recorders)
        return recorders

    def generate(self, prompt: Sequence[int], **options: Any) -> Recorder:
        return self.run(make_request(prompt, **options))[0]

    def assert_nothing_leaks(self) -> None:
        """Nobody holds a block, and every block is either free or in the tree once."""
        pool, tree = self.core.kv.pool, self.core.kv.tree
        assert not self.core.book.active and not self.core.has_work
        assert pool.num_held == 0
        assert pool.num_free == pool.num_blocks
        blocks = [node.block for node in tree.nodes()]
        assert len(set(blocks)) == len(blocks)
        assert sorted(blocks) == sorted(pool._cached)


def arrival(offset_s: float = 0.0) -> float:
    return time.monotonic() + offset_s
