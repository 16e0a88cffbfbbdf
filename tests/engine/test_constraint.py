"""Grammars plug in as TokenConstraint: masks, forced tokens, ends, forks. Here a fake one that walks a list of allowed sets."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest

from tests.engine.running import Runner, make_request
from tests.support.scripted_model import greedy_continuation

PROMPT = (2, 7, 1, 8)
WORDS = (
    ({5, 6}, True), ({9}, False), ({10}, False), ({11}, False), (None, True), ({3, 4}, True), ({12}, False), ({13}, False),
)  # fmt: skip
"""Allowed ids of each place of the output (None: all), and whether the place is open. Closed ones are forced."""


@dataclass
class Walk:
    """Output place `at` must be in WORDS[at]; after the last the text is complete."""

    at: int = 0
    accepted: list[int] = field(default_factory=list)
    fail_at: int | None = None

    def mask(self) -> npt.NDArray[np.uint32] | None:
        ids = WORDS[self.at][0]
        return None if ids is None else np.array([sum(1 << i for i in ids)], np.uint32)

    def forced(self) -> list[int]:
        found = []
        for ids, is_open in WORDS[self.at :]:
            if is_open:
                break
            found += list(ids or ())
        return found

    def accept(self, token: int) -> bool:
        if self.at == self.fail_at:
            raise RuntimeError("grammar")
        ids = WORDS[self.at][0]
        assert ids is None or token in ids
        self.at += 1
        self.accepted.append(token)
        return self.at == len(WORDS)

    def fork(self) -> Walk:
        return Walk(self.at, list(self.accepted), self.fail_at)


def check(tokens: list[int]) -> None:
    assert len(tokens) == len(WORDS)
    assert all(ids is None or token in ids for token, (ids, _) in zip(tokens, WORDS, strict=True))


def test_masked_and_forced_tokens_and_the_end_of_the_grammar() -> None:
    runner = Runner()
    found = runner.generate(PROMPT, constraint=Walk, max_tokens=40)
    check(found.tokens())
    assert found.finishes[0].finish_reason == "stop" and found.finishes[0].stop_token_id is None
    runner.assert_nothing_leaks()


def test_jumping_forward_saves_steps_and_changes_nothing() -> None:
    """With log probabilities every forced token has a step of its own; without, forced runs are appended at once."""
    jumping, stepping = Runner(), Runner()
    jumped = jumping.generate(PROMPT, constraint=Walk)
    stepped = stepping.generate(PROMPT, constraint=Walk, logprobs=0)
    assert jumped.tokens() == stepped.tokens()
    assert len(stepped.logprobs()) == len(WORDS)
    assert jumping.model.num_steps < stepping.model.num_steps


@pytest.mark.parametrize("max_num_batched_tokens", [4, 5, 32])
def test_forced_runs_longer_than_a_step_s_rows(max_num_batched_tokens) -> None:
    runner = Runner(max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=4)
    requests = [make_request((*PROMPT, i), constraint=Walk) for i in range(6)]
    for i, found in enumerate(runner.run(*requests)):
        assert found.tokens() == Runner().generate((*PROMPT, i), constraint=Walk).tokens()
    runner.assert_nothing_leaks()


def test_max_tokens_cuts_a_forced_run() -> None:
    found = Runner().generate(PROMPT, constraint=Walk, max_tokens=3)
    assert (len(found.tokens()), found.reason) == (3, "length")
    assert found.tokens()[1:] == [9, 10]


def test_each_choice_has_its_own_state() -> None:
    found = Runner().generate(PROMPT, constraint=Walk, n=4, temperature=2.0, seed=9)
    for choice in range(4):
        check(found.tokens(choice))
    assert len({tuple(found.tokens(choice)) for choice in range(4)}) > 1


def test_a_mask_and_allowed_ids_together_allow_what_both_allow() -> None:
    found = Runner().generate(PROMPT, constraint=Walk, allowed_token_ids=(6, 4, 20))
    assert found.tokens()[0] == 6 and found.tokens()[5] == 4


@pytest.mark.parametrize("fail_at", [0, 2])
def test_a_failing_grammar_fails_its_request_only(fail_at) -> None:
    runner = Runner()
    bad, good = runner.run(
        make_request(PROMPT, constraint=lambda: Walk(fail_at=fail_at)), make_request(PROMPT, max_tokens=5)
    )
    assert isinstance(bad.error, RuntimeError)
    assert good.tokens() == greedy_continuation(PROMPT, 5)
    runner.assert_nothing_leaks()


def test_a_grammar_that_cannot_be_made_fails_its_request_only() -> None:
    def make() -> Walk:
        raise RuntimeError("grammar")

    bad, good = Runner().run(make_request(PROMPT, constraint=make), make_request(PROMPT, max_tokens=5))
    assert isinstance(bad.error, RuntimeError)
    assert good.tokens() == greedy_continuation(PROMPT, 5)
