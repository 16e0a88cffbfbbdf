"""Rotary frequencies: what each kind must keep, stretch or refuse."""

import math

import numpy as np
import pytest

from edgewise.core.errors import UnsupportedModelError
from edgewise.core.spec import RopeSpec
from edgewise.decoder.rope import rope_frequencies


def test_plain_frequencies_fall_geometrically_from_one() -> None:
    inv_freq, scale = rope_frequencies(RopeSpec(theta=10000.0, dim=64))
    assert scale == 1.0
    assert inv_freq[0] == 1.0
    ratios = inv_freq[1:] / inv_freq[:-1]
    np.testing.assert_allclose(ratios, 10000.0 ** (-2 / 64), rtol=1e-12)


def test_linear_scaling_divides_every_frequency() -> None:
    plain, _ = rope_frequencies(RopeSpec(theta=1e6, dim=32))
    scaled, _ = rope_frequencies(RopeSpec(theta=1e6, dim=32, scaling="linear", factor=4.0))
    np.testing.assert_allclose(scaled, plain / 4.0)


def test_llama3_keeps_short_waves_and_stretches_long_ones() -> None:
    rope = RopeSpec(
        theta=500000.0, dim=128, scaling="llama3", factor=8.0, original_max_positions=8192,
        low_freq_factor=1.0, high_freq_factor=4.0,
    )  # fmt: skip
    plain, _ = rope_frequencies(RopeSpec(theta=500000.0, dim=128))
    scaled, _ = rope_frequencies(rope)
    wavelength = 2 * math.pi / plain
    short, long = wavelength < 8192 / 4, wavelength > 8192
    assert short.any()
    assert long.any()
    np.testing.assert_allclose(scaled[short], plain[short])
    np.testing.assert_allclose(scaled[long], plain[long] / 8.0)
    between = ~short & ~long
    assert np.all(scaled[between] < plain[between])
    assert np.all(scaled[between] > plain[between] / 8.0)


def test_yarn_interpolates_slow_pairs_and_sharpens_attention() -> None:
    rope = RopeSpec(theta=10000.0, dim=128, scaling="yarn", factor=4.0, original_max_positions=4096)
    plain, _ = rope_frequencies(RopeSpec(theta=10000.0, dim=128))
    scaled, scale = rope_frequencies(rope)
    rotations = 4096 * plain / (2 * math.pi)
    np.testing.assert_allclose(scaled[rotations > 40], plain[rotations > 40])
    np.testing.assert_allclose(scaled[rotations < 0.9], plain[rotations < 0.9] / 4.0)
    assert scale == pytest.approx(0.1 * math.log(4.0) + 1.0)


def test_explicit_attention_factor_wins() -> None:
    rope = RopeSpec(
        theta=1e4, dim=8, scaling="yarn", factor=2.0, original_max_positions=64, attention_factor=1.5
    )
    assert rope_frequencies(rope)[1] == 1.5


def test_frequency_factors_divide_pair_by_pair() -> None:
    factors = (1.0, 2.0, 4.0, 8.0)
    plain, _ = rope_frequencies(RopeSpec(theta=1e4, dim=8))
    scaled, _ = rope_frequencies(RopeSpec(theta=1e4, dim=8, scaling="longrope", freq_factors=factors))
    np.testing.assert_allclose(scaled * factors, plain)


@pytest.mark.parametrize(
    "rope", [RopeSpec(theta=1e4, dim=7), RopeSpec(theta=1e4, dim=0), RopeSpec(1e4, 8, freq_factors=(1.0,))]
)
def test_impossible_specs_are_refused(rope: RopeSpec) -> None:
    with pytest.raises(UnsupportedModelError):
        rope_frequencies(rope)
