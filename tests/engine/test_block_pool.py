"""BlockPool against a naive model: three sets and a list, over random runs of its operations."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edgewise.engine.block_pool import BlockPool
from tests.support.examples import examples

NUM_BLOCKS = 6


class PoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS)
        self.pool.on_reclaim = self.reclaimed
        self.holders: Counter[int] = Counter()
        self.marked: set[int] = set()
        self.cached: list[int] = []  # oldest first
        self.expected_reclaim: int | None = None

    def reclaimed(self, block: int) -> None:
        assert block == self.expected_reclaim, (
            "the block let go longest ago is reclaimed, and only when none is free"
        )
        self.marked.discard(block)
        self.cached.remove(block)
        self.expected_reclaim = None

    @property
    def held(self) -> list[int]:
        return sorted(block for block, count in self.holders.items() if count)

    @precondition(lambda self: len(self.held) < NUM_BLOCKS)
    @rule()
    def allocate(self) -> None:
        any_free = len(self.held) + len(self.cached) < NUM_BLOCKS
        self.expected_reclaim = None if any_free else self.cached[0]
        block = self.pool.allocate()
        assert self.expected_reclaim is None
        assert not self.holders[block] and block not in self.cached
        self.holders[block] = 1

    @precondition(lambda self: self.held or self.cached)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.held + self.cached))
        self.pool.share(block)
        self.holders[block] += 1
        if block in self.cached:
            self.cached.remove(block)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.held))
        self.pool.release(block)
        self.holders[block] -= 1
        if not self.holders[block] and block in self.marked:
            self.cached.append(block)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def mark(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.held))
        self.pool.mark(block)
        self.marked.add(block)

    @precondition(lambda self: self.marked)
    @rule(data=st.data())
    def unmark(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.marked)))
        self.pool.unmark(block)
        self.marked.remove(block)
        if block in self.cached:
            self.cached.remove(block)

    @invariant()
    def counts_agree(self) -> None:
        assert self.pool.num_free == NUM_BLOCKS - len(self.held)
        assert self.pool.num_held == len(self.held)
        for block in range(NUM_BLOCKS):
            assert self.pool.num_holders(block) == self.holders[block]


TestBlockPool = PoolMachine.TestCase
TestBlockPool.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
