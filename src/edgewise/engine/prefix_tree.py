"""PrefixTree: which KV blocks hold which tokens, found by content, exact to the token.

A node is one block of a sequence that began at the root of its salt. Its key is the block's content: *symbols* of 8 bytes, one a
slot. A symbol is a token id, or stands for one slot of a media item (`media_symbols`), never for a placeholder id. Full nodes have
`block_size` symbols and may have children; partial ones are leaves.

Invariants:
- No key is a prefix of a sibling's: the longer one serves every hit of the shorter. So in a sorted list of the siblings the
  longest common prefix with any query is found beside the place where the query would go, in O(log n).
- A block belongs to at most one node; a node's block is marked in the pool, so that it outlives its holders.
- Holders of a block hold its ancestors too and let go of the deepest first, so the pool reclaims leaves before their parents.

Each full node carries a chained hash of its content (salt and fingerprint included): the name of its bytes anywhere else.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from edgewise.engine.block_pool import BlockPool

SYMBOL_BYTES = 8
HASH_BYTES = 16


def token_symbols(token_ids: npt.NDArray[np.int32]) -> bytes:
    """Symbols of token ids: 8 bytes each, non-negative as a signed number."""
    return token_ids.astype(np.int64).tobytes()


def media_symbols(content_hash: bytes, num_slots: int) -> bytes:
    """Symbols of the slots of one media item: a function of its content and the offset, never equal to a token's."""
    seed = hashlib.blake2b(content_hash, digest_size=HASH_BYTES).digest()
    parts = (
        hashlib.blake2b(seed + offset.to_bytes(8, "little"), digest_size=8).digest()
        for offset in range(num_slots)
    )
    symbols = np.frombuffer(b"".join(parts), np.int64) | np.int64(-(2**63))  # the sign bit: no token has it
    return symbols.tobytes()


class Node:
    """One cached block, or (block -1) the root of a salt."""

    __slots__ = ("block", "children", "content_hash", "key", "order", "parent")

    def __init__(self, parent: Node | None, key: bytes, block: int, content_hash: bytes) -> None:
        self.parent = parent
        self.key = key
        self.block = block
        self.content_hash = content_hash
        self.children: dict[bytes, Node] = {}
        self.order: list[bytes] = []  # keys of the children, sorted

    @property
    def num_tokens(self) -> int:
        return len(self.key) // SYMBOL_BYTES


@dataclass(frozen=True, slots=True)
class Match:
    """What the tree knows of a run of symbols: whole blocks in order, then the leading slots of one more block."""

    blocks: list[Node] = field(default_factory=list)
    partial: Node | None = None
    partial_len: int = 0


class PrefixTree:
    """Content of the blocks of one pool. Marks and unmarks them there, and forgets those it reclaims."""

    def __init__(self, pool: BlockPool, block_size: int, fingerprint: str = "") -> None:
        self._pool = pool
        self._block_size = block_size
        self._key_bytes = block_size * SYMBOL_BYTES
        self._fingerprint = fingerprint.encode()
        self._roots: dict[bytes, Node] = {}
        self._by_block: dict[int, Node] = {}
        self.version = 0  # changes with every change of content
        pool.on_reclaim = self._forget

    def __len__(self) -> int:
        return len(self._by_block)

    def match(self, parent: Node | None, salt: bytes, symbols: bytes, limit: int) -> Match:
        """The longest known beginning of `symbols`, at most `limit` tokens, below `parent` (None: the salt's root).

        Reads only, and every read of what other threads may change is one atomic operation: beside a running engine the result is
        of no single moment, but never an error.
        """
        node = parent or self._roots.get(salt)
        blocks: list[Node] = []
        if node is None:
            return Match()
        width, end = self._key_bytes, min(limit * SYMBOL_BYTES, len(symbols))
        at = 0
        while at + width <= end and (child := node.children.get(symbols[at : at + width])) is not None:
            blocks.append(child)
            node = child
            at += width
        partial, length = self._nearest(node, symbols[at : min(end, at + width)])
        return Match(blocks, partial, length)

    def insert(self, parent: Node | None, salt: bytes, key: bytes, block: int) -> Node | None:
        """Record that held block `block` has content `key` after `parent`; returns the node that serves this content now.

        That is another block's node when the content was known before. A block recorded with less of the same content is recorded
        anew. None: `key` is a beginning of what another block holds, so there is nothing to record.
        """
        if (old := self._by_block.get(block)) is not None:
            if old.key == key:
                return old
            self._remove(old)
        above = parent or self._root(salt)
        if (known := above.children.get(key)) is not None:
            return known
        place = bisect_left(above.order, key)
        if place < len(above.order) and above.order[place].startswith(key):
            return None
        if place and key.startswith(above.order[place - 1]):
            self._remove(above.children[above.order[place - 1]])
            above = parent or self._root(salt)  # a root that lost its last child is gone
            place = bisect_left(above.order, key)
        node = Node(above, key, block, self._hash(above, key))
        above.children[key] = node
        above.order.insert(place, key)
        self._by_block[block] = node
        self._pool.mark(block)
        self.version += 1
        return node

    def clear(self) -> None:
        """Forget everything. Blocks stay with their holders, if any."""
        blocks = list(self._by_block)
        self._by_block.clear()
        self._roots.clear()
        for block in blocks:
            self._pool.unmark(block)
        self.version += 1

    def nodes(self) -> Iterator[Node]:
        """All nodes, in no order."""
        return iter(self._by_block.values())

    def _root(self, salt: bytes) -> Node:
        if (root := self._roots.get(salt)) is None:
            name = b"%d:%b%b" % (len(self._fingerprint), self._fingerprint, salt)
            root = Node(None, salt, -1, hashlib.blake2b(name, digest_size=HASH_BYTES).digest())
            self._roots[salt] = root
        return root

    def _hash(self, parent: Node, key: bytes) -> bytes:
        return hashlib.blake2b(parent.content_hash + key, digest_size=HASH_BYTES).digest()

    def _nearest(self, node: Node, wanted: bytes) -> tuple[Node | None, int]:
        """The child that shares the longest beginning with `wanted`, and how many tokens that is."""
        best, best_len = None, 0
        place = bisect_left(node.order, wanted)
        for key in node.order[max(0, place - 1) : place + 1]:
            length = _common_len(key, wanted)
            if length > best_len and (child := node.children.get(key)) is not None:
                best, best_len = child, length
        return best, best_len

    def _forget(self, block: int) -> None:
        """The pool reclaimed a block."""
        node = self._by_block[block]
        assert not node.children, "a block is reclaimed before its descendants"
        self._detach(node)

    def _remove(self, node: Node) -> None:
        """Drop a leaf whose block stays as it is."""
        assert not node.children, "only leaves are removed"
        self._detach(node)
        self._pool.unmark(node.block)

    def _detach(self, node: Node) -> None:
        above = node.parent
        assert above is not None
        del self._by_block[node.block]
        del above.children[node.key]
        del above.order[bisect_left(above.order, node.key)]
        self.version += 1
        if above.parent is None and not above.children:
            self._roots.pop(above.key, None)


def _common_len(a: bytes, b: bytes) -> int:
    """How many leading symbols two keys share."""
    low, high = 0, min(len(a), len(b)) // SYMBOL_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if a[: middle * SYMBOL_BYTES] == b[: middle * SYMBOL_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low
