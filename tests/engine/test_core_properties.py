"""Whatever runs beside a request, however it is chunked, cached, preempted: its tokens are those of a run alone. Nothing leaks."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.running import Recorder, Runner, make_request
from tests.support.examples import examples
from tests.support.scripted_model import ScriptedModel

VOCAB = 16
WINDOW = 48


@dataclass(frozen=True)
class Arrival:
    """A request, the step it comes in, and the step it is cancelled in, if any."""

    prompt: tuple[int, ...]
    options: tuple[tuple[str, Any], ...]
    step: int
    cancel_after: int | None
    salt: str

    def request(self) -> Any:
        return make_request(
            self.prompt, cache_salt=self.salt, priority=len(self.prompt) % 3, **dict(self.options)
        )


@st.composite
def prompts(draw: st.DrawFn) -> tuple[int, ...]:
    """Prompts that often begin alike, so that blocks are shared and copied."""
    common = draw(st.sampled_from([(), (1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 4, 5), (3,) * 20]))
    return (*common, *draw(st.lists(st.integers(0, 3), min_size=1, max_size=14)))


@st.composite
def sampling(draw: st.DrawFn) -> tuple[tuple[str, Any], ...]:
    options: dict[str, Any] = {
        "max_tokens": draw(st.integers(0, 16)),
        "n": draw(st.sampled_from([1, 1, 1, 2, 3])),
    }
    if draw(st.booleans()):
        options |= {
            "temperature": 1.0,
            "seed": draw(st.integers(0, 5)),
            "top_k": draw(st.sampled_from([0, 5])),
        }
    if draw(st.integers(0, 3)) == 0:
        options |= {"frequency_penalty": 0.7, "repetition_penalty": 1.2}
    if draw(st.integers(0, 3)) == 0:
        options |= {"logprobs": 2}
    if draw(st.integers(0, 5)) == 0:
        options |= {"prompt_logprobs": 1}
    if draw(st.booleans()):
        options |= {"eos_token_ids": frozenset({7})}
    return tuple(options.items())


arrivals = st.builds(
    Arrival,
    prompt=prompts(),
    options=sampling(),
    step=st.integers(0, 12),
    cancel_after=st.one_of(st.none(), st.none(), st.integers(0, 8)),
    salt=st.sampled_from(["", "", "a"]),
)
settings_of_a_run = st.fixed_dictionaries(
    {
        "max_num_seqs": st.integers(1, 16),
        "max_num_batched_tokens": st.integers(16, 40),
        "enable_prefix_caching": st.booleans(),
        "scheduling_policy": st.sampled_from(["fcfs", "priority", "lpm"]),
    }
)


def facts(recorder: Recorder, choice: int) -> tuple[Any, ...]:
    finish = recorder.finishes.get(choice)
    return (
        recorder.tokens(choice),
        recorder.logprobs(choice),
        finish and (finish.finish_reason, finish.stop_token_id),
    )


@functools.lru_cache(maxsize=10_000)
def alone(arrival: Arrival) -> Recorder:
    """The request in an engine of its own: whole prompt at once, plenty of blocks, no cache."""
    runner = Runner(
        ScriptedModel(vocab_size=VOCAB, num_blocks=100, max_outputs=64),
        max_model_len=WINDOW,
        max_num_seqs=16,
        max_num_batched_tokens=64,
        enable_prefix_caching=False,
    )
    return runner.run(arrival.request())[0]


@given(
    plan=st.lists(arrivals, min_size=1, max_size=10),
    config=settings_of_a_run,
    num_blocks=st.integers(WINDOW // 4, 40),
    max_outputs=st.integers(16, 20),
)
@settings(max_examples=examples(50), deadline=None)
def test_tokens_do_not_depend_on_company(plan, config, num_blocks, max_outputs) -> None:
    model = ScriptedModel(vocab_size=VOCAB, num_blocks=num_blocks, max_rows=40, max_outputs=max_outputs)
    runner = Runner(model, max_model_len=WINDOW, **config)
    recorders: dict[int, Recorder] = {}
    requests = [arrival.request() for arrival in plan]
    for step in range(3000):
        for i, arrival in enumerate(plan):
            if arrival.step == step:
                recorders[i] = runner.add(requests[i])
            if arrival.cancel_after is not None and arrival.step + arrival.cancel_after == step:
                runner.core.cancel(requests[i].request_id)
                assert recorders[i].ended, "a cancel takes effect at once"
        if not runner.core.step() and step > 24:
            break
    else:
        raise AssertionError("starved")

    runner.assert_nothing_leaks()
    for i, arrival in enumerate(plan):
        expected, found = alone(arrival), recorders[i]
        assert found.ended
        cut_short = found.reason == "cancelled"
        for choice in range(found.num_choices):
            if cut_short and choice not in found.finishes:
                assert found.tokens(choice) == expected.tokens(choice)[: len(found.tokens(choice))]
            else:
                assert facts(found, choice) == facts(expected, choice)
        if "prompt_logprobs" in dict(arrival.options) and not cut_short:
            assert found.prompt_logprobs() == expected.prompt_logprobs()


@given(plan=st.lists(arrivals, min_size=4, max_size=12), num_blocks=st.integers(WINDOW // 4, 16))
@settings(max_examples=examples(20), deadline=None)
def test_preemption_changes_nothing(plan, num_blocks) -> None:
    """Hardly more blocks than one sequence needs: nearly every run preempts."""
    model = ScriptedModel(vocab_size=VOCAB, num_blocks=num_blocks)
    runner = Runner(model, max_model_len=WINDOW, max_num_seqs=8)
    recorders = runner.run(*[arrival.request() for arrival in plan])
    runner.assert_nothing_leaks()
    for arrival, found in zip(plan, recorders, strict=True):
        expected = alone(arrival)
        assert [facts(found, c) for c in range(found.num_choices)] == [
            facts(expected, c) for c in range(found.num_choices)
        ]
