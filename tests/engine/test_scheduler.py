"""Who runs when: decode first, bounded prefill, policies and their ageing, preemption."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from edgewise.core.errors import ConfigError
from edgewise.decoder.batch import Batch, StepOutput
from edgewise.engine.config import EngineConfig
from edgewise.engine.pace import FIRST_ROWS_PER_S, MIN_ROWS, StepPace
from tests.engine.running import Recorder, Runner, make_request
from tests.support.scripted_model import ScriptedModel, greedy_continuation

NOW = time.monotonic()


def first_tokens_in_order(runner: Runner, requests: list[Any]) -> list[int]:
    """Indexes of the requests in the order of their first tokens."""
    recorders = [runner.add(request) for request in requests]
    order: list[int] = []
    while runner.core.step():
        order += [i for i, recorder in enumerate(recorders) if recorder.events and i not in order]
    return order


def test_running_sequences_decode_in_every_step_beside_a_long_prompt() -> None:
    runner = Runner(ScriptedModel(num_blocks=200), max_model_len=300, max_num_batched_tokens=12)
    short = runner.add(make_request([1, 2], max_tokens=40))
    runner.core.step()
    runner.add(make_request([i % 7 for i in range(200)], max_tokens=1))
    for step in range(15):
        runner.core.step()
        assert len(short.tokens()) == step + 2
        assert runner.model.row_counts[-1] <= 12


class SlowRows(ScriptedModel):
    """Takes a set time a row, without waiting: the clock is moved by hand."""

    clock_s = 0.0

    def step(self, batch: Batch) -> StepOutput:
        SlowRows.clock_s += 0.002 + batch.num_rows / 50.0
        return super().step(batch)


def test_prefill_chunks_are_bounded_by_time_while_others_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    SlowRows.clock_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: SlowRows.clock_s)
    runner = Runner(
        SlowRows(num_blocks=2000), max_model_len=4000, max_num_batched_tokens=256, step_budget_s=0.25
    )
    runner.add(make_request([1, 2], max_tokens=500))
    runner.core.step()
    runner.add(make_request([i % 7 for i in range(700)], max_tokens=1))
    steps: list[float] = []
    while any(seq.num_pending > 1 for seq in runner.core.scheduler.running()) or len(steps) < 3:
        before = SlowRows.clock_s
        runner.core.step()
        steps.append(SlowRows.clock_s - before)
    assert max(steps[8:]) <= 0.30, "50 rows/s leave 8 rows in a quarter of a second"
    assert np.mean(runner.model.row_counts[10:40]) >= 8.5, "and the budget is used"


def test_prefill_chunks_are_bounded_by_time_alone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    SlowRows.clock_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: SlowRows.clock_s)
    runner = Runner(
        SlowRows(num_blocks=500), max_model_len=900, max_num_batched_tokens=256, lone_step_budget_s=2.0
    )
    runner.generate([i % 7 for i in range(800)], max_tokens=1)
    first, *later = runner.model.row_counts
    assert first == 256, "before anything is measured"
    assert max(later) <= 104 and later[0] >= 96, "50 rows/s for two seconds"


def test_prefill_alone_takes_whole_chunks_where_there_is_time() -> None:
    runner = Runner(SlowRows(num_blocks=200), max_model_len=300, max_num_batched_tokens=64)
    runner.generate([i % 7 for i in range(128)], max_tokens=1)
    assert runner.model.row_counts == [64, 64]


def test_pace_follows_what_it_measures() -> None:
    pace = StepPace()
    assert pace.prefill_rows(0.25) == FIRST_ROWS_PER_S * 0.25 // MIN_ROWS * MIN_ROWS
    for _ in range(30):
        pace.observe(4, 0, 0.050)
        pace.observe(4, 100, 0.150)
    assert pace.prefill_rows(0.25) == pytest.approx(200, rel=0.05)
    assert pace.prefill_rows(0.0) == MIN_ROWS


def test_fcfs_runs_in_order_of_arrival() -> None:
    requests = [
        make_request([i, 9], max_tokens=1, arrival_s=NOW + offset) for i, offset in enumerate((3.0, 1.0, 2.0))
    ]
    assert first_tokens_in_order(Runner(max_num_seqs=1), requests) == [1, 2, 0]


def test_priority_runs_lower_numbers_first_until_ageing_makes_up_for_it() -> None:
    def requests(waited_s: float) -> list[Any]:
        return [
            make_request([1, 9], max_tokens=1, priority=5, arrival_s=NOW - waited_s),
            make_request([2, 9], max_tokens=1, priority=0, arrival_s=NOW),
            make_request([3, 9], max_tokens=1, priority=-1, arrival_s=NOW),
        ]

    config = {"max_num_seqs": 1, "scheduling_policy": "priority", "priority_ageing_s": 10.0}
    assert first_tokens_in_order(Runner(**config), requests(5.0)) == [2, 1, 0]
    assert first_tokens_in_order(Runner(**config), requests(70.0)) == [0, 2, 1]


def test_lpm_runs_the_longest_cached_prefix_first_until_ageing_makes_up_for_it() -> None:
    def order(waited_s: float) -> list[int]:
        runner = Runner(max_num_seqs=1, scheduling_policy="lpm", lpm_ageing_tokens_per_s=1.0)
        runner.generate(list(range(20)), max_tokens=1)
        requests = [
            make_request([25, 26], max_tokens=1, arrival_s=time.monotonic() - waited_s),
            make_request([*range(9), 27], max_tokens=1, arrival_s=time.monotonic()),
            make_request([*range(19), 28], max_tokens=1, arrival_s=time.monotonic()),
        ]
        return first_tokens_in_order(runner, requests)

    assert order(0.0) == [2, 1, 0]
    assert order(15.0) == [2, 0, 1]
    assert order(100.0) == [0, 2, 1]


@pytest.mark.parametrize("policy", ["priority", "lpm"])
def test_nothing_starves_under_a_stream_of_favourites(policy, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    runner = Runner(
        max_num_seqs=1, scheduling_policy=policy, priority_ageing_s=5.0, lpm_ageing_tokens_per_s=1.0
    )
    runner.generate(list(range(16)), max_tokens=1)
    patient = runner.add(make_request([30, 30], max_tokens=1, priority=9, arrival_s=clock[0]))
    for i in range(200):
        runner.add(make_request([*range(15), i % 8], max_tokens=1, priority=0, arrival_s=clock[0]))
        runner.core.step()
        clock[0] += 1.0
        if patient.ended:
            return
    raise AssertionError("starved")


def test_the_newest_is_preempted_and_finishes_later_with_the_same_tokens() -> None:
    runner = Runner(ScriptedModel(num_blocks=12), max_model_len=48)
    requests = [make_request([i] * 8, max_tokens=30, arrival_s=NOW + i) for i in range(4)]
    recorders: list[Recorder] = [runner.add(request) for request in requests]
    ended: list[int] = []
    while runner.core.step():
        ended += [i for i, recorder in enumerate(recorders) if recorder.ended and i not in ended]
    assert ended == [0, 1, 2, 3], "the first to come is never preempted for a later one"
    assert runner.core.stats().num_preemptions > 0
    for i, recorder in enumerate(recorders):
        assert recorder.tokens() == greedy_continuation([i] * 8, 30)
    runner.assert_nothing_leaks()


def test_a_sequence_may_fill_the_whole_pool() -> None:
    runner = Runner(ScriptedModel(num_blocks=12), max_model_len=48)
    found = runner.run(*[make_request([i] * 10, max_tokens=None) for i in range(3)])
    assert [len(recorder.tokens()) for recorder in found] == [38] * 3
    runner.assert_nothing_leaks()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"max_model_len": 257}, "257.*256 tokens"),
        ({"max_num_seqs": 33}, "33"),
        ({"max_num_seqs": 33, "max_num_batched_tokens": 64}, "32 output rows"),
        ({"max_num_batched_tokens": 300}, "256 rows"),
        ({"scheduling_policy": "random"}, "random"),
    ],
)
def test_a_config_the_decoder_cannot_hold_is_refused_with_both_numbers(config, message) -> None:
    model = ScriptedModel(num_blocks=64, block_size=4, max_rows=256, max_outputs=32)
    with pytest.raises(ConfigError, match=message):
        EngineConfig(**{"max_model_len": 64, "max_num_batched_tokens": 32, **config}).check(model)
