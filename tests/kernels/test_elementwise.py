"""Element-wise kernels through their Python doors: right against float64, equal bits on every instruction set."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgewise import _native
from tests.kernels.programs import activation as exact_activation
from tests.support.examples import examples

F32 = npt.NDArray[np.float32]
ISAS = _native.available_isas()
ACTIVATIONS = ("silu", "gelu_tanh", "gelu", "relu2")

lengths = st.integers(0, 70)
rows = lengths.flatmap(lambda n: arrays(np.float32, (3, n), elements=st.floats(width=32)))


def on_every_isa(call: Callable[[str, F32], None], start: F32) -> F32:
    """The result all instruction sets agree on, bit for bit (any NaN is as good as another)."""
    results = []
    for isa in ISAS:
        y = start.copy()
        call(isa, y)
        results.append(y)
    for y, isa in zip(results, ISAS, strict=True):
        np.testing.assert_array_equal(y, results[-1], err_msg=isa)
        number = ~np.isnan(y)
        np.testing.assert_array_equal(np.signbit(y[number]), np.signbit(results[-1][number]), err_msg=isa)
    return results[-1]


@given(rows)
@settings(max_examples=examples(150), deadline=None)
def test_instruction_sets_agree_on_any_numbers(x: F32) -> None:
    a, b, y = x
    on_every_isa(lambda isa, y: _native.norm(isa, "rms", a, b, None, 1e-6, y), y)
    on_every_isa(lambda isa, y: _native.norm(isa, "layer", a, b, a, 1e-6, y), y)
    on_every_isa(lambda isa, y: _native.add(isa, a, -0.7, y), y)
    on_every_isa(lambda isa, y: _native.soft_cap(isa, a, 30.0, y), y)
    for kind in ACTIVATIONS:
        on_every_isa(lambda isa, y, kind=kind: _native.activation(isa, kind, a, y), y)
        on_every_isa(lambda isa, y, kind=kind: _native.gated_activation(isa, kind, a, b, y), y)


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations(kind: str) -> None:
    x = np.linspace(-15, 15, 4001, dtype=np.float32)
    y = on_every_isa(lambda isa, y: _native.activation(isa, kind, x, y), np.empty_like(x))
    np.testing.assert_allclose(y, exact_activation(kind, x.astype(np.float64)), rtol=1.5e-6, atol=5e-7)


@pytest.mark.parametrize("width", [1, 7, 8, 9, 64, 577])
def test_norms(width: int) -> None:
    rng = np.random.default_rng(width)
    x, weight, bias = (rng.normal(size=width).astype(np.float32) for _ in range(3))
    exact = x.astype(np.float64)
    rms = on_every_isa(lambda isa, y: _native.norm(isa, "rms", x, weight, None, 1e-5, y), x)
    np.testing.assert_allclose(rms, exact / np.sqrt((exact**2).mean() + 1e-5) * weight, rtol=1e-6)
    layer = on_every_isa(lambda isa, y: _native.norm(isa, "layer", x, weight, bias, 1e-5, y), x)
    centred = exact - exact.mean()
    want = centred / np.sqrt((centred**2).mean() + 1e-5) * weight + bias
    np.testing.assert_allclose(layer, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("pairs", [1, 3, 4, 8, 13, 32])
def test_rope_turns_pairs_and_leaves_the_rest(pairs: int, pairing: str) -> None:
    rng = np.random.default_rng(pairs)
    x = rng.normal(size=(3, 2 * pairs + 5)).astype(np.float32)
    inv_freq = 10000.0 ** (-np.arange(pairs) / pairs)
    y = on_every_isa(lambda isa, y: _native.rope(isa, y, 100_003.0, inv_freq, 1.25, pairing), x)
    first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    if pairing == "interleaved":
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    turned = (x[:, first] + 1j * x[:, second]) * 1.25 * np.exp(1j * 100_003.0 * inv_freq)
    np.testing.assert_allclose(y[:, first] + 1j * y[:, second], turned, atol=2e-6)
    np.testing.assert_array_equal(y[:, 2 * pairs :], x[:, 2 * pairs :])


def test_arrays_that_do_not_fit_are_refused() -> None:
    x, y = np.ones(8, np.float32), np.ones(8, np.float32)
    with pytest.raises(ValueError, match="x must be a C-contiguous float32 array of 1 dimension"):
        _native.activation("auto", "silu", x.astype(np.float64), y)
    with pytest.raises(ValueError, match="x must be"):
        _native.activation("auto", "silu", np.ones(16, np.float32)[::2], y)
    with pytest.raises(ValueError, match="differ in length"):
        _native.activation("auto", "silu", x, y[:7].copy())
    y.flags.writeable = False
    with pytest.raises(ValueError, match="y must be a writable"):
        _native.activation("auto", "silu", x, y)
    with pytest.raises(ValueError, match="inv_freq is longer"):
        _native.rope("auto", np.ones((1, 8), np.float32), 0.0, np.ones(5), 1.0, "half")
