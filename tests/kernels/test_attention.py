"""Attention through the Python doors: against float64, and one row's output whatever it is computed with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.kernels import attention as door
from edgewise.kernels import reference_attention as reference
from edgewise.kernels.native import available_isas
from tests.support.examples import examples

F32 = npt.NDArray[np.float32]
HALF_NAN = 0x7E55


class Sequence:
    """A cache with one sequence of `num_keys` tokens in shuffled blocks; every other slot is NaN."""

    def __init__(self, num_keys: int, kv_heads: int, dim: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        used = -(-num_keys // door.BLOCK)
        self.keys, self.values = door.new_cache(used + 2, kv_heads, dim, dim)
        self.keys[:] = self.values[:] = HALF_NAN
        self.table = rng.permutation(used + 2)[:used].astype(np.int32)
        self.k = rng.normal(size=(num_keys, kv_heads, dim)).astype(np.float32)
        self.v = rng.normal(size=(num_keys, kv_heads, dim)).astype(np.float32)
        for index in range(num_keys):
            door.kv_write(self.keys, self.values, self.table, index, self.k[index], self.v[index])

    def attend(
        self,
        q: F32,
        first: int,
        shape: door.AttentionShape,
        *,
        sinks: F32 | None = None,
        isa: str = "auto",
    ) -> F32:
        return door.attention(q, self.keys, self.values, self.table, first, shape, sinks=sinks, isa=isa)


shapes = st.builds(
    door.AttentionShape,
    scale=st.sampled_from([0.125, 0.5]),
    soft_cap=st.sampled_from([0.0, 0.0, 5.0]),
    window=st.sampled_from([0, 0, 1, 40, 300]),
    chunk=st.sampled_from([0, 0, 64, 100]),
)


@pytest.mark.parametrize("isa", available_isas())
@given(
    first=st.integers(0, 400),
    rows=st.integers(1, 9),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 8),
    dim=st.sampled_from([8, 64, 80]),
    shape=shapes,
    with_sinks=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=examples(40), deadline=None)
def test_error_stays_within_the_bound(
    isa: str,
    first: int,
    rows: int,
    kv_heads: int,
    group: int,
    dim: int,
    shape: door.AttentionShape,
    with_sinks: bool,
    seed: int,
) -> None:
    sequence = Sequence(first + rows, kv_heads, dim, seed)
    rng = np.random.default_rng(seed + 1)
    q = rng.normal(size=(rows, kv_heads * group, dim)).astype(np.float32)
    sinks = rng.normal(size=kv_heads * group).astype(np.float32) if with_sinks else None
    got = sequence.attend(q, first, shape, sinks=sinks, isa=isa)
    want, bound = reference.attention(
        q, sequence.keys, sequence.values, sequence.table, first, shape, sinks=sinks
    )
    assert np.isfinite(got).all()
    worst = np.unravel_index(np.argmax(np.abs(got - want) / bound), got.shape)
    assert (np.abs(got - want) <= bound).all(), (
        f"row, head, component {worst}: {got[worst]} for {want[worst]}"
    )


@pytest.mark.parametrize("isa", available_isas())
@given(cut=st.integers(1, 39), shape=shapes, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(20), deadline=None)
def test_a_row_does_not_depend_on_its_tile(isa: str, cut: int, shape: door.AttentionShape, seed: int) -> None:
    first, rows = 235, 40
    sequence = Sequence(first + rows, 1, 64, seed)
    q = np.random.default_rng(seed + 1).normal(size=(rows, 3, 64)).astype(np.float32)
    whole = sequence.attend(q, first, shape, isa=isa)
    parts = [
        sequence.attend(q[:cut], first, shape, isa=isa),
        sequence.attend(q[cut:], first + cut, shape, isa=isa),
    ]
    np.testing.assert_array_equal(whole.view(np.uint32), np.concatenate(parts).view(np.uint32))


def test_uniform_scores_average_the_window() -> None:
    sequence = Sequence(300, 1, 8, seed=1)
    q = np.zeros((1, 1, 8), np.float32)
    got = sequence.attend(q, 299, door.AttentionShape(scale=1.0, window=50))
    mean = sequence.v[250:300, 0].astype(np.float16).astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(got[0, 0], mean, atol=1e-6)


def test_a_heavy_sink_takes_the_weight() -> None:
    sequence = Sequence(10, 1, 8, seed=1)
    q = np.zeros((1, 1, 8), np.float32)
    shape = door.AttentionShape(scale=1.0)
    plain = sequence.attend(q, 9, shape)
    halved = sequence.attend(q, 9, shape, sinks=np.array([np.log(10.0)], np.float32))
    np.testing.assert_allclose(halved, plain / 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "heads", "dim", "keys"), [(65, 2, 8, 70), (1, 3, 8, 4), (1, 2, 16, 4), (1, 2, 8, 33)]
)
def test_arrays_that_do_not_fit_are_refused(rows: int, heads: int, dim: int, keys: int) -> None:
    sequence = Sequence(32 if keys > 32 and rows == 1 else keys, 2, 8, seed=1)
    q = np.zeros((rows, heads, dim), np.float32)
    with pytest.raises(ValueError, match="attention"):
        sequence.attend(q, keys - rows, door.AttentionShape(scale=1.0))
