"""PrefixTree: exact hits against a naive list of everything recorded, rules of siblings, salts, hashes and media symbols."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.engine.block_pool import BlockPool
from edgewise.engine.prefix_tree import Match, Node, PrefixTree, media_symbols, token_symbols
from tests.support.examples import examples

SIZE = 3


def symbols(ids: list[int]) -> bytes:
    return token_symbols(np.array(ids, np.int32))


def record(tree: PrefixTree, pool: BlockPool, salt: bytes, ids: list[int]) -> list[int]:
    """Record a whole sequence as the engine does: full blocks one by one, then the tail. Returns blocks to release, deepest first."""
    parent: Node | None = None
    held: list[int] = []
    for start in range(0, len(ids), SIZE):
        block = pool.allocate()
        node = tree.insert(parent, salt, symbols(ids[start : start + SIZE]), block)
        if node is not None and node.block != block:
            pool.release(block)
            pool.share(node.block)
            block = node.block
        held.append(block)
        parent = node
    return held[::-1]


def content(match: Match) -> list[int]:
    """The tokens a match stands for."""
    keys = b"".join(node.key for node in match.blocks)
    if match.partial is not None:
        keys += match.partial.key[: match.partial_len * 8]
    return np.frombuffer(keys, np.int64).tolist()


def common_len(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


ids_lists = st.lists(st.integers(0, 2), min_size=1, max_size=11)
salts = st.sampled_from([b"", b"tenant"])


@given(
    recorded=st.lists(st.tuples(salts, ids_lists), max_size=12),
    queries=st.lists(st.tuples(salts, ids_lists, st.integers(0, 12)), max_size=8),
)
@settings(max_examples=examples(100), deadline=None)
def test_a_hit_is_the_longest_prefix_ever_recorded(recorded, queries) -> None:
    pool = BlockPool(200)  # never reclaimed
    tree = PrefixTree(pool, SIZE)
    for salt, ids in recorded:
        for block in record(tree, pool, salt, ids):
            pool.release(block)
    assert pool.num_held == 0
    for salt, ids, limit in queries:
        match = tree.match(None, salt, symbols(ids), limit)
        longest = max(
            (common_len(ids[:limit], known) for other, known in recorded if other == salt), default=0
        )
        assert content(match) == ids[:longest]
        assert len(match.blocks) == longest // SIZE or match.partial_len == SIZE


@given(runs=st.lists(st.tuples(ids_lists, st.booleans()), min_size=1, max_size=40))
@settings(max_examples=examples(60), deadline=None)
def test_reclaimed_blocks_are_never_found_again(runs) -> None:
    """A small pool reclaims all the time; what a match names must still be what was recorded for those very blocks."""
    pool = BlockPool(6)
    tree = PrefixTree(pool, SIZE)
    written: dict[int, bytes] = {}
    held: list[list[int]] = []
    for ids, keep in runs:
        while held and pool.num_free < 4:
            for block in held.pop(0):
                pool.release(block)
        match = tree.match(None, b"", symbols(ids), len(ids))
        assert content(match) == ids[: len(content(match))]
        for node in match.blocks + ([match.partial] if match.partial else []):
            assert written[node.block].startswith(node.key)
        blocks = record(tree, pool, b"", ids)
        for i, block in enumerate(reversed(blocks)):
            known = written.get(block, b"")
            key = symbols(ids[i * SIZE : (i + 1) * SIZE])
            written[block] = known if known.startswith(key) and tree_has(tree, block, known) else key
        if keep:
            held.append(blocks)
        else:
            for block in blocks:
                pool.release(block)
        check_shape(tree)


def tree_has(tree: PrefixTree, block: int, key: bytes) -> bool:
    return any(node.block == block and node.key == key for node in tree.nodes())


def check_shape(tree: PrefixTree) -> None:
    """Sorted siblings, none a prefix of another, every parent reachable."""
    nodes = list(tree.nodes())
    for node in nodes:
        above = node.parent
        assert above is not None and above.children[node.key] is node
        assert above.order == sorted(above.children)
        assert not any(b.startswith(a) for a, b in zip(above.order, above.order[1:], strict=False))
        assert above.parent is None or above in nodes
        assert not node.children or node.num_tokens == SIZE


def test_a_longer_tail_replaces_the_shorter_one_and_its_block_is_free_again() -> None:
    pool = BlockPool(4)
    tree = PrefixTree(pool, SIZE)
    (short,) = record(tree, pool, b"", [1])
    pool.release(short)
    (longer,) = record(tree, pool, b"", [1, 2])
    assert [node.block for node in tree.nodes()] == [longer]
    assert tree.insert(None, b"", symbols([1]), pool.allocate()) is None


def test_content_hashes_chain_and_tell_salts_and_fingerprints_apart() -> None:
    def hashes(fingerprint: str, salt: bytes, ids: list[int]) -> list[bytes]:
        pool = BlockPool(8)
        tree = PrefixTree(pool, SIZE, fingerprint)
        record(tree, pool, salt, ids)
        return [node.content_hash for node in tree.nodes()]

    first, second = hashes("m", b"", [1, 2, 3, 1, 2, 3])
    assert first != second, "the same tokens after another beginning are other content"
    assert hashes("m", b"", [1, 2, 3]) == [first]
    others = [
        hashes("m", b"x", [1, 2, 3]),
        hashes("x", b"", [1, 2, 3]),
        hashes("", b"m", [1, 2, 3]),
        hashes("m", b"", [1, 2, 4]),
    ]
    assert len({first, *(other[0] for other in others)}) == 5


def test_clear_forgets_all_and_frees_what_nobody_holds() -> None:
    pool = BlockPool(4)
    tree = PrefixTree(pool, SIZE)
    held = record(tree, pool, b"", [1, 2, 3, 4])
    (loose,) = record(tree, pool, b"x", [1])
    pool.release(loose)
    tree.clear()
    assert len(tree) == 0 and tree.match(None, b"", symbols([1, 2, 3, 4]), 4) == Match()
    for block in held:
        pool.release(block)
    assert pool.num_free == 4


def test_media_symbols_are_of_content_and_offset_and_never_tokens() -> None:
    a, b = (np.frombuffer(media_symbols(name, 100), np.int64) for name in (b"a", b"b"))
    assert len(set(a.tolist()) | set(b.tolist())) == 200
    assert (a < 0).all() and (b < 0).all()
    assert media_symbols(b"a", 7) == a[:7].tobytes()
