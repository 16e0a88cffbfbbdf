"""BlockPool: who holds which KV block. Knows nothing of tokens or tensors; engine thread only.

A block is in exactly one of three states:
- *held*: `num_holders(block) >= 1`; sequences hold it.
- *cached*: nobody holds it, but it is marked as having content worth keeping. It may be taken again by `share`, or be reclaimed.
- *free*: neither.

`allocate` prefers free blocks, then reclaims the cached block that was let go longest ago and reports it to `on_reclaim`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable


class BlockPool:
    """Counts of holders and the order of reclaiming of `num_blocks` blocks."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.on_reclaim: Callable[[int], None] = _ignore
        self._holders = [0] * num_blocks
        self._marked = bytearray(num_blocks)
        # Last freed, first used: that memory is warm, and blocks never used stay uncommitted.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # oldest first

    @property
    def num_free(self) -> int:
        """Blocks `allocate` can give now: free and cached ones."""
        return len(self._free) + len(self._cached)

    @property
    def num_held(self) -> int:
        return self.num_blocks - self.num_free

    def num_holders(self, block: int) -> int:
        return self._holders[block]

    def allocate(self) -> int:
        """A block with one holder and undefined content. The caller has checked `num_free`."""
        assert self.num_free, "allocate without a free block"
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            self._marked[block] = 0
            self.on_reclaim(block)
        self._holders[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more holder of a held or cached block."""
        if self._holders[block] == 0:
            del self._cached[block]  # KeyError: the block is free, its content undefined
        self._holders[block] += 1

    def release(self, block: int) -> None:
        """One holder less. The last one leaves the block cached when it is marked, else free."""
        assert self._holders[block] > 0, f"block {block} is released more often than held"
        self._holders[block] -= 1
        if self._holders[block] == 0:
            if self._marked[block]:
                self._cached[block] = None
            else:
                self._free.append(block)

    def mark(self, block: int) -> None:
        """The content of a held block is worth keeping once nobody holds it."""
        assert self._holders[block] > 0, f"block {block} is marked but not held"
        self._marked[block] = 1

    def unmark(self, block: int) -> None:
        """The content of a block is no longer worth keeping."""
        self._marked[block] = 0
        if self._holders[block] == 0:
            del self._cached[block]
            self._free.append(block)


def _ignore(block: int) -> None:
    pass
