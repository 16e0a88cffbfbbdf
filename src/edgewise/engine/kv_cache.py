"""KvCache: the blocks of sequences. Joins the pool (who holds what) with the prefix tree (what is in it).

The rules of sharing:
- Whole blocks found in the tree are shared. Leading slots of a block are copied to a block of one's own.
- A sequence writes only to a block it alone holds; a fork's shared last block is copied first. A block recorded in the tree as
  partly filled may still be filled further by its holder: the record covers only the slots filled before.
- A block filled up is recorded at once. When its content is already known, the sequence takes the known block and gives up its
  own: equal prefixes have equal KV (batch invariance), and so a sequence always holds the very blocks of its tree nodes.
- The last, partly filled block is recorded when the prompt is complete and again when the sequence lets go.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from edgewise.engine.block_pool import BlockPool
from edgewise.engine.prefix_tree import Match, PrefixTree, token_symbols
from edgewise.engine.sequence import Sequence

CopyBlock = Callable[[int, int], None]
"""`copy_block(source, target)` copies a block's bytes at once."""


class KvCache:
    """Block tables of all sequences. Engine thread only, but for `known_len`."""

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int,
        copy_block: CopyBlock,
        enable_prefix_caching: bool = True,
        fingerprint: str = "",
    ) -> None:
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self.tree = PrefixTree(self.pool, block_size, fingerprint)
        self._copy_block = copy_block
        self._caching = enable_prefix_caching
        self._epoch = 0  # sequences of an earlier epoch hold blocks that the tree no longer knows

    @property
    def num_free(self) -> int:
        return self.pool.num_free

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def find(self, seq: Sequence) -> Match:
        """What the cache has for a sequence beyond its committed blocks. Never its last token, nor one whose output is wanted."""
        if not self._caching or (seq.num_blocks and seq.cache_epoch != self._epoch):
            return Match()
        start = seq.num_committed * self.block_size
        limit = seq.first_output - start
        return self.tree.match(seq.node, seq.salt, seq.symbols(start, start + limit), limit)

    def known_len(self, salt: bytes, token_ids: npt.NDArray[np.int32], limit: int) -> int:
        """How many leading tokens, at most `limit`, the cache holds. Any thread; see `PrefixTree.match`."""
        if not self._caching:
            return 0
        match = self.tree.match(None, salt, token_symbols(token_ids[:limit]), limit)
        return len(match.blocks) * self.block_size + match.partial_len

    def cost(self, match: Match) -> int:
        """Free blocks that sharing a match would use up, on top of the blocks it saves allocating."""
        return sum(1 for node in match.blocks if self.pool.num_holders(node.block) == 0)

    def reuse(self, seq: Sequence, match: Match) -> None:
        """Take over a match, if it reaches further than what the sequence has computed. Counts the hit on the request."""
        start = (seq.num_committed + len(match.blocks)) * self.block_size
        if start + match.partial_len <= seq.num_computed:
            return
        self._drop_tail(seq)
        for node in match.blocks:
            self.pool.share(node.block)
            seq.block_table[seq.num_blocks] = node.block
            seq.num_blocks += 1
            seq.node = node
        seq.num_committed += len(match.blocks)
        seq.num_computed = start
        seq.cache_epoch = self._epoch
        if match.partial is not None:
            self._copy_partial(seq, match)
        gained = seq.num_computed - seq.num_computed_before
        if gained > 0 and seq.choice == 0:
            seq.owner.num_cached_tokens += gained
        seq.num_computed_before = max(seq.num_computed_before, seq.num_computed)

    def grow(self, seq: Sequence, num_slots: int) -> bool:
        """Make slots num_computed..num_slots writable. False, and nothing changed, when blocks run out."""
        if not seq.shares_tail and num_slots <= seq.num_blocks * self.block_size:
            return True
        last = seq.num_computed // self.block_size
        shared = (
            seq.shares_tail
            and last < seq.num_blocks
            and self.pool.num_holders(int(seq.block_table[last])) > 1
        )
        wanted = self.blocks_for(num_slots) - seq.num_blocks
        if wanted + shared > self.pool.num_free:
            return False
        if seq.num_blocks == 0:
            seq.cache_epoch = self._epoch
        if shared:
            source = int(seq.block_table[last])
            target = self.pool.allocate()
            self._copy_block(source, target)
            self.pool.release(source)
            seq.block_table[last] = target
        seq.shares_tail = False
        for _ in range(wanted):
            seq.block_table[seq.num_blocks] = self.pool.allocate()
            seq.num_blocks += 1
        return True

    def advance(self, seq: Sequence, num_rows: int) -> None:
        """The KV of `num_rows` more tokens is computed: record the blocks that are full now."""
        seq.num_computed += num_rows
        if seq.num_computed > seq.num_computed_before:
            seq.num_computed_before = seq.num_computed
        if (seq.num_committed + 1) * self.block_size <= _num_shown(seq) and self._recorded(seq):
            self._commit(seq)

    def record_tail(self, seq: Sequence) -> None:
        """Record the partly filled last block as far as it is computed, so that others can copy from it."""
        start = seq.num_committed * self.block_size
        end = _num_shown(seq)
        if start < end and self._recorded(seq):
            block = int(seq.block_table[seq.num_committed])
            self.tree.insert(seq.node, seq.salt, seq.symbols(start, end), block)

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Give a sequence without blocks the same blocks as another, shared."""
        assert child.num_blocks == 0
        child.block_table[: parent.num_blocks] = parent.block_table[: parent.num_blocks]
        for block in parent.block_table[: parent.num_blocks].tolist():
            self.pool.share(block)
        child.num_blocks, child.num_committed = parent.num_blocks, parent.num_committed
        child.num_computed, child.num_computed_before = parent.num_computed, parent.num_computed_before
        parent.shares_tail = child.shares_tail = True
        child.node, child.cache_epoch = parent.node, parent.cache_epoch

    def release(self, seq: Sequence) -> None:
        """Let go of all blocks; what was computed stays cached until the space is needed."""
        self.record_tail(seq)
        self._drop_tail(seq, keep=0)
        seq.num_committed = seq.num_computed = 0
        seq.shares_tail = False
        seq.node = None

    def reset(self) -> None:
        """Forget all cached content. Running sequences go on, but what they hold is not recorded any more."""
        self._epoch += 1
        self.tree.clear()

    def _recorded(self, seq: Sequence) -> bool:
        return self._caching and seq.cache_epoch == self._epoch

    def _commit(self, seq: Sequence) -> None:
        size = self.block_size
        while (seq.num_committed + 1) * size <= _num_shown(seq):
            start = seq.num_committed * size
            block = int(seq.block_table[seq.num_committed])
            node = self.tree.insert(seq.node, seq.salt, seq.symbols(start, start + size), block)
            assert node is not None, "a full block is never a part of another"
            if node.block != block:
                self.pool.share(node.block)
                self.pool.release(block)
                seq.block_table[seq.num_committed] = node.block
            seq.node = node
            seq.num_committed += 1

    def _drop_tail(self, seq: Sequence, keep: int | None = None) -> None:
        """Release the blocks after the first `keep` (default: the committed ones), the deepest first."""
        keep = seq.num_committed if keep is None else keep
        for i in range(seq.num_blocks - 1, keep - 1, -1):
            self.pool.release(int(seq.block_table[i]))
        seq.num_blocks = keep

    def _copy_partial(self, seq: Sequence, match: Match) -> None:
        """Copy the leading slots of a match's last block; without a free block the hit ends before them."""
        assert match.partial is not None
        source = match.partial.block
        self.pool.share(source)  # not to be reclaimed by this very allocation
        if self.pool.num_free:
            target = self.pool.allocate()
            self._copy_block(source, target)
            seq.block_table[seq.num_blocks] = target
            seq.num_blocks += 1
            seq.num_computed += match.partial_len
        self.pool.release(source)


def _num_shown(seq: Sequence) -> int:
    """How many of a sequence's computed tokens others may find: of one that keeps its answer to itself, the prompt's."""
    if seq.owner.request.cache_output:
        return seq.num_computed
    return min(seq.num_computed, seq.num_prompt)
