"""Programs: right against NumPy, the same bits however the work is cut, refusals instead of crashes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from edgewise import _native
from tests.kernels.programs import (
    Part,
    Shape,
    TinyDecoder,
    aligned,
    pack_f32,
    run_chunks,
    run_step,
    step_arrays,
)

ISAS = _native.available_isas()
BLOCKS = [9, 2, 13, 4, 30, 6, 7, 25, 0, 1]  # scattered on purpose
TOKENS = 280  # two partitions of attention
SHAPES = {
    "plain": Shape(),
    "layer_norm_gelu": Shape(norm="layer", activation="gelu", qk_norm=False, pairing="interleaved"),
    "sinks_and_caps": Shape(sinks=True, soft_cap=3.0, logit_cap=5.0, activation="gelu_tanh"),
    "chunked_no_rope": Shape(kinds=(("chunked", 40), ("full", 0)), pairs=0, bias=False, activation="relu2"),
    "one_kv_head": Shape(kv_heads=1, kinds=(("full", 0),), pairs=4),
    "many_heads": Shape(heads=12, kv_heads=4, kinds=(("sliding", 300),)),
}


@pytest.fixture(scope="module", params=[1, 2, 3], ids=lambda n: f"{n}_threads")
def pool(request: pytest.FixtureRequest) -> Iterator[_native.Pool]:
    pool = _native.Pool(request.param)
    yield pool
    pool.close()


@pytest.fixture
def one_thread() -> Iterator[_native.Pool]:
    pool = _native.Pool(1)
    yield pool
    pool.close()


def tokens(count: int, seed: int = 5) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.random.default_rng(seed).integers(0, Shape().vocab, count).astype(np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", SHAPES)
def test_equals_the_numpy_decoder(name: str, isa: str, pool: _native.Pool) -> None:
    model = TinyDecoder(SHAPES[name])
    ids = tokens(TOKENS)
    program = model.program(pool, model.cache(), isa=isa)
    got, want = run_step(program, [Part(ids, 0, BLOCKS)]), model.reference(ids)
    np.testing.assert_allclose(got, want, atol=4e-3 * np.abs(want).max())


@pytest.mark.parametrize("name", SHAPES)
def test_same_bits_however_the_rows_are_cut(name: str, pool: _native.Pool, one_thread: _native.Pool) -> None:
    model = TinyDecoder(SHAPES[name])
    ids = tokens(TOKENS)
    whole = run_chunks(model.program(one_thread, model.cache()), ids, [TOKENS], BLOCKS)
    program = model.program(pool, model.cache())
    for chunks in ([TOKENS], [7, 1, 64, 100], [250, *[1] * 12, 2, 3]):
        np.testing.assert_array_equal(run_chunks(program, ids, chunks, BLOCKS), whole, err_msg=str(chunks))


@pytest.mark.parametrize("name", SHAPES)
def test_same_bits_on_every_instruction_set(name: str, one_thread: _native.Pool) -> None:
    model = TinyDecoder(SHAPES[name])
    ids = tokens(TOKENS)
    generic = run_chunks(model.program(one_thread, model.cache(), isa="generic"), ids, [TOKENS], BLOCKS)
    for isa in ISAS:
        got = run_chunks(model.program(one_thread, model.cache(), isa=isa), ids, [240, 30, 1], BLOCKS)
        np.testing.assert_array_equal(got, generic, err_msg=isa)


@pytest.mark.parametrize("lanes", [4, 16])
def test_layouts_of_other_machines_give_the_same_bits(lanes: int, one_thread: _native.Pool) -> None:
    native, foreign = TinyDecoder(Shape()), TinyDecoder(Shape(lanes=lanes))
    ids = tokens(50)
    want = run_step(native.program(one_thread, native.cache()), [Part(ids, 0, BLOCKS)])
    got = run_step(foreign.program(one_thread, foreign.cache()), [Part(ids, 0, BLOCKS)])
    np.testing.assert_array_equal(got, want)


def test_sequences_in_a_batch_equal_sequences_alone(pool: _native.Pool) -> None:
    model = TinyDecoder(Shape())
    tables = [[0, 1, 2], [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], [14], [20, 21, 22, 23]]
    texts = [tokens(n, seed) for seed, n in enumerate((70, 340, 1, 100))]
    alone = [
        run_chunks(model.program(pool, model.cache()), t, [len(t)], b)
        for t, b in zip(texts, tables, strict=True)
    ]
    program = model.program(pool, model.cache())
    before = [0, 300, 0, 99]  # rows already in the cache when all four meet
    for text, table, n in zip(texts, tables, before, strict=True):
        if n:
            run_step(program, [Part(text[:n], 0, table)])
    parts = [Part(t[n:], n, b) for t, b, n in zip(texts, tables, before, strict=True)]
    together = np.split(run_step(program, parts), np.cumsum([len(p.ids) for p in parts])[:-1])
    for got, want, n in zip(together, alone, before, strict=True):
        np.testing.assert_array_equal(got, want[n:])


def test_only_wanted_rows_have_logits(pool: _native.Pool) -> None:
    model = TinyDecoder(Shape())
    program = model.program(pool, model.cache())
    everything = run_step(program, [Part(tokens(20), 0, BLOCKS)])
    np.testing.assert_array_equal(
        run_step(program, [Part(tokens(20), 0, BLOCKS)], [19, 3]), everything[[19, 3]]
    )
    assert run_step(program, [Part(tokens(20), 0, BLOCKS)], []).shape == (0, model.shape.vocab)


def test_a_buffer_can_be_read_after_a_step(one_thread: _native.Pool) -> None:
    cache = _native.KvCache([(1, 8, 8)], 1)
    program = _native.Program(one_thread, "auto", 4, 2, cache)
    x, wanted = program.buffer(24), program.output_buffer(24)
    table = np.random.default_rng(2).normal(size=(16, 24)).astype(np.float32)
    program.embed(pack_f32(table), x)
    program.gather_outputs(x, wanted)
    assert program.run(**step_arrays([Part(np.array([5, 9, 2], np.int32), 0, [0])], [1]))
    np.testing.assert_array_equal(program.rows(x, 3), table[[5, 9, 2]])
    np.testing.assert_array_equal(program.rows(wanted, 1), table[[9]])
    for buffer, rows in ((x, 5), (wanted, 3), (x, -1), (7, 1)):
        with pytest.raises(ValueError, match="buffer"):
            program.rows(buffer, rows)


def test_embeddings_replace_token_rows(one_thread: _native.Pool) -> None:
    model = TinyDecoder(Shape())
    ids = tokens(12)
    values = np.random.default_rng(1).normal(size=(2, model.shape.embed)).astype(np.float32)
    program = model.program(one_thread, model.cache())
    arrays = step_arrays([Part(np.where(np.isin(np.arange(12), [4, 9]), -1, ids), 0, BLOCKS)])
    assert program.run(**arrays, embeddings=(np.array([4, 9], np.int32), values))
    want = model.reference(ids, {4: values[0], 9: values[1]})
    np.testing.assert_allclose(program.logits(12), want, atol=4e-3 * np.abs(want).max())


def test_logits_are_writable_and_last_until_the_next_step(one_thread: _native.Pool) -> None:
    model = TinyDecoder(Shape())
    program = model.program(one_thread, model.cache())
    first = run_step(program, [Part(tokens(3), 0, BLOCKS)])
    view = program.logits(3)
    view[:] = -1.0
    assert program.logits(1)[0, 0] == -1.0
    np.testing.assert_array_equal(run_step(program, [Part(tokens(3), 0, BLOCKS)]), first)
    np.testing.assert_array_equal(view, first)


def test_blocks_copy_and_travel(one_thread: _native.Pool) -> None:
    model = TinyDecoder(Shape())
    ids = tokens(80)
    cache = model.cache()
    program = model.program(one_thread, cache)
    whole = run_chunks(program, ids, [80], BLOCKS)
    cache.copy_blocks(np.array(BLOCKS[:2], np.int32), np.array([40, 41], np.int32))
    after_copy = run_step(program, [Part(ids[64:], 64, [40, 41, 42])])
    np.testing.assert_array_equal(after_copy, whole[64:])

    other = model.cache(4)
    for target, source in enumerate(BLOCKS[:2]):
        data = cache.export_block(source)
        assert len(data) == cache.bytes_per_block
        other.import_block(target + 1, data)
    imported = run_step(model.program(one_thread, other), [Part(ids[64:], 64, [1, 2, 3])])
    np.testing.assert_array_equal(imported, whole[64:])


def long_program(pool: _native.Pool) -> tuple[_native.Program, dict[str, Any]]:
    """A program that takes some 100 ms and more, and arguments to run it."""
    program = _native.Program(pool, "auto", 64, 1, _native.KvCache([(1, 8, 8)], 1))
    x, y = program.buffer(256), program.buffer(256)
    matrix = pack_f32(np.zeros((256, 256), np.float32))
    for _ in range(2000):
        program.linear(x, [(matrix, None, y, 0)])
    return program, step_arrays([Part(np.zeros(32, np.int32), 0, [0])], [])


@pytest.mark.slow
def test_cancel_ends_a_step_and_only_that_step(pool: _native.Pool) -> None:
    program, arrays = long_program(pool)
    stop = threading.Event()

    def keep_cancelling() -> None:
        while not stop.wait(0.002):
            program.cancel()

    canceller = threading.Thread(target=keep_cancelling)
    canceller.start()
    try:
        assert program.run(**arrays) is False
    finally:
        stop.set()
        canceller.join()
    program.run(**arrays)  # a cancel that came after the step costs this one
    assert program.run(**arrays) is True
    program.cancel()
    assert program.run(**arrays) is False
    assert program.run(**arrays) is True


def test_a_running_program_is_not_run_or_changed_by_others(one_thread: _native.Pool) -> None:
    program, arrays = long_program(one_thread)
    expected = {"the program is running on another thread", "a program cannot be changed while it runs"}
    refusals: set[str] = set()
    stop = threading.Event()

    def attempt(call: Callable[[], object]) -> None:
        try:
            call()
        except RuntimeError as error:
            refusals.add(str(error))

    def keep_running() -> None:
        while not stop.is_set():
            attempt(lambda: program.run(**arrays))

    runner = threading.Thread(target=keep_running)
    runner.start()
    deadline_s = time.monotonic() + 60
    while refusals != expected and time.monotonic() < deadline_s:
        attempt(lambda: program.run(**arrays))
        attempt(lambda: program.scale(0, 1.0))
    stop.set()
    runner.join()
    assert refusals == expected


def test_profile_counts_calls(pool: _native.Pool) -> None:
    model = TinyDecoder(Shape())
    program = model.program(pool, model.cache())
    program.profile(True)
    for _ in range(3):
        run_step(program, [Part(tokens(5), 0, BLOCKS)])
    program.profile(False)
    run_step(program, [Part(tokens(5), 0, BLOCKS)])
    report = program.profile_report()
    assert sum(calls for _, _, calls in report) == 3 * (
        2 + 2 * 5 + 2
    )  # table, embed, five a layer, gather, head
    assert all(seconds > 0.0 for _, seconds, _ in report)
    assert any(label.startswith("gated_mlp 24->37 F32") for label, _, _ in report)


BAD_STEPS = {
    "token id out of range": {"token_ids": np.array([0, 43, 0], np.int32)},
    "token id out of range (at 0)": {"token_ids": np.array([-1, 0, 0], np.int32)},
    "positions has length 2": {"positions": np.arange(2, dtype=np.int32)},
    "row_starts must begin with 0": {"row_starts": np.array([1, 3], np.int32)},
    "row_starts must end with": {"row_starts": np.array([0, 2], np.int32)},
    "row_starts has length 3": {"row_starts": np.array([0, 1, 3], np.int32)},
    "context_lens must not be negative": {"context_lens": np.array([-1], np.int32)},
    "too narrow": {"context_lens": np.array([30], np.int32)},
    "a block that does not exist": {"block_tables": np.array([[64]], np.int32)},
    "output_rows names a row": {"output_rows": np.array([3], np.int32)},
    "at most 4 outputs": {"output_rows": np.zeros(5, np.int32)},
    "1 to 8 rows, got 9": {"token_ids": np.zeros(9, np.int32), "positions": np.zeros(9, np.int32)},
    "1 to 8 rows, got 0": {"token_ids": np.zeros(0, np.int32), "positions": np.zeros(0, np.int32)},
    "token_ids must be a C-contiguous int32": {"token_ids": np.zeros(3, np.int64)},
    "block_tables must be a C-contiguous int32 array of 2": {"block_tables": np.zeros(3, np.int32)},
    "embeddings have width 5": {"embeddings": (np.zeros(1, np.int32), np.zeros((1, 5), np.float32))},
    "embedding names a row": {"embeddings": (np.full(1, 3, np.int32), np.zeros((1, 24), np.float32))},
    "embedding values has length 2": {"embeddings": (np.zeros(1, np.int32), np.zeros((2, 24), np.float32))},
}


@pytest.mark.parametrize("message", BAD_STEPS)
def test_bad_steps_are_refused(message: str, one_thread: _native.Pool) -> None:
    model = TinyDecoder(Shape())
    program = model.program(one_thread, model.cache(), max_rows=8, max_outputs=4)
    good = step_arrays([Part(tokens(3), 0, [5])])
    with pytest.raises(ValueError) as raised:
        program.run(**{**good, **BAD_STEPS[message]})
    assert message in str(raised.value)
    assert program.run(**good)


def test_bad_programs_are_refused(one_thread: _native.Pool) -> None:
    model = TinyDecoder(Shape())
    cache = model.cache()
    program = _native.Program(one_thread, "auto", 8, 4, cache)
    x, y, out = program.buffer(24), program.buffer(16), program.output_buffer(24)
    q, k, v, mixed = program.buffer(32), program.buffer(16), program.buffer(32), program.buffer(64)
    matrix = pack_f32(np.ones((16, 24), np.float32))
    ones = np.ones(24, np.float32)

    def refused(message: str, call: Any, *args: Any, **kwargs: Any) -> None:
        with pytest.raises(ValueError) as raised:
            call(*args, **kwargs)
        assert message in str(raised.value)

    refused("no buffer 99", program.linear, 99, [(matrix, None, y, 0)])
    refused("its input has width 16", program.linear, y, [(matrix, None, x, 0)])
    refused("do not fit dest", program.linear, x, [(matrix, None, y, 1)])
    refused("different buffers", program.linear, x, [(matrix, None, x, 0)])
    refused("bias has 24 values", program.linear, x, [(matrix, ones, y, 0)])
    refused(
        "norm weight has 16", program.linear, x, [(matrix, None, y, 0)], norm=("rms", ones[:16], None, 1e-5)
    )
    refused("at least one matrix", program.linear, x, [])
    refused("matrix must be a Matrix", program.linear, x, [(None, None, y, 0)])
    refused("unknown activation 'swish'", program.mlp_up, x, matrix, "swish", y)
    refused("unknown norm", program.norm, x, x, "batch", ones, None, 1e-5)
    refused("takes no bias", program.norm, x, x, "rms", ones, ones, 1e-5)
    refused("differ in shape", program.add, x, y)
    refused("head reads an output buffer", program.head, x, matrix)
    refused("reads rows", program.gather_outputs, out, out)
    refused("the program has no head", program.logits, 1)
    attention = (q, k, v, mixed, 4, 2, 8, 16, 1.0)
    refused("no layer 2", program.attention, 2, *attention)
    refused("positive window", program.attention, 0, *attention, kind="sliding")
    refused("unknown pairing", program.attention, 0, *attention, pairing="both")
    refused("q must be a buffer", program.attention, 0, k, k, v, mixed, 4, 2, 8, 16, 1.0)
    refused("differs in shape from layer 0", program.attention, 0, q, k, v, mixed, 4, 1, 8, 16, 1.0)
    refused("no rope table 3", program.attention, 0, *attention, rope_table=3)
    refused("inv_freq must be", program.rope_table, ones, 1.0)
    refused("not available here", _native.Program, one_thread, "sse9", 8, 4, cache)
    refused("max_rows", _native.Program, one_thread, "auto", 0, 4, cache)


def test_bad_matrices_and_caches_are_refused() -> None:
    data = aligned(bytes(4 * 8 * 8))
    _native.Matrix("F32", 8, 8, 8, data)
    for message, arguments in {
        "unknown weight format": ("Q9", 8, 8, 8, data),
        "layout must be": ("F32", 0, 8, 8, data),
        "must have 512 bytes, not 256": ("F32", 8, 9, 8, data),
        "positive": ("F32", 8, 0, 8, data),
        "uint8 array": ("F32", 8, 8, 8, data.view(np.float32)),
        "multiple of 64": ("F32", 8, 8, 8, aligned(bytes(4 + 4 * 8 * 8))[4:]),
    }.items():
        with pytest.raises(ValueError, match=message):
            _native.Matrix(*arguments)
    for layers, blocks in (([], 1), ([(1, 8, 8)], 0), ([(1, 7, 8)], 1), ([(0, 8, 8)], 1)):
        with pytest.raises(ValueError):
            _native.KvCache(layers, blocks)
    cache = _native.KvCache([(1, 8, 8)], 2)
    with pytest.raises(ValueError, match="no block 2"):
        cache.copy_blocks(np.array([0], np.int32), np.array([2], np.int32))
    with pytest.raises(ValueError, match="no block -1"):
        cache.export_block(-1)
    with pytest.raises(ValueError, match="a block has 1024 bytes"):
        cache.import_block(0, b"short")


def test_a_closed_pool_refuses_steps() -> None:
    pool = _native.Pool(2)
    model = TinyDecoder(Shape())
    program = model.program(pool, model.cache())
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        program.run(**step_arrays([Part(tokens(3), 0, BLOCKS)]))
    with pytest.raises(ValueError, match="between 1 and"):
        _native.Pool(0)
