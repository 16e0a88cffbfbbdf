"""Rotary frequencies of every RoPE kind a `RopeSpec` can name: pure arithmetic, in double precision.

The native table turns `position * inv_freq` into cosines and sines once per step; all layers with an equal spec share it.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from edgewise.core.errors import UnsupportedModelError
from edgewise.core.spec import RopeSpec


def rope_frequencies(rope: RopeSpec, window: int = 0) -> tuple[npt.NDArray[np.float64], float]:
    """(inv_freq: f64[dim / 2], scale): angle of pair i at position p is p * inv_freq[i]; cos and sin are multiplied by scale.

    `window` is the longest sequence served, tokens: LongRoPE models have other factors for windows beyond the original one.

    Sources: YaRN (Peng et al. 2023, sections 3.2-3.4); Llama 3.1's frequency-dependent scaling as published with its
    reference code; LongRoPE's per-pair factors as shipped in checkpoints. Raises UnsupportedModelError for odd dimensions.
    """
    if rope.dim % 2 or rope.dim <= 0:
        raise UnsupportedModelError(f"rotary dimension must be even and positive, got {rope.dim}")
    pairs = np.arange(0, rope.dim, 2, dtype=np.float64)
    inv_freq = rope.theta ** (-pairs / rope.dim)
    chosen = rope.freq_factors
    if rope.long_freq_factors and window > rope.original_max_positions:
        chosen = rope.long_freq_factors
    if chosen:
        factors = np.asarray(chosen, dtype=np.float64)
        if factors.shape != inv_freq.shape:
            raise UnsupportedModelError(
                f"rotary frequency factors: expected {inv_freq.size} values, got {factors.size}"
            )
        inv_freq = inv_freq / factors
    scale = 1.0 if rope.attention_factor is None else rope.attention_factor
    match rope.scaling:
        case "none":
            return inv_freq, scale
        case "linear":
            return inv_freq / rope.factor, scale
        case "longrope":
            return inv_freq, scale
        case "llama3":
            return _llama3(inv_freq, rope), scale
        case "yarn":
            default = 0.1 * math.log(rope.factor) + 1.0 if rope.factor > 1.0 else 1.0
            return _yarn(inv_freq, rope), default if rope.attention_factor is None else rope.attention_factor


def _llama3(inv_freq: npt.NDArray[np.float64], rope: RopeSpec) -> npt.NDArray[np.float64]:
    """Long waves are stretched by `factor`, short ones kept, those between blended linearly in rotations per window."""
    rotations = rope.original_max_positions * inv_freq / (2.0 * math.pi)
    keep = (rotations - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    keep = np.clip(keep, 0.0, 1.0)
    return inv_freq * (keep + (1.0 - keep) / rope.factor)


def _yarn(inv_freq: npt.NDArray[np.float64], rope: RopeSpec) -> npt.NDArray[np.float64]:
    """Pairs that turn more than beta_fast times in the original window are kept, fewer than beta_slow are interpolated."""

    def pair_of(rotations: float) -> float:
        wave = rope.original_max_positions / (rotations * 2.0 * math.pi)
        return rope.dim * math.log(wave) / (2.0 * math.log(rope.theta))

    low = max(math.floor(pair_of(rope.beta_fast)), 0)
    high = min(math.ceil(pair_of(rope.beta_slow)), rope.dim - 1)
    ramp = np.clip((np.arange(inv_freq.size) - low) / max(high - low, 1e-3), 0.0, 1.0)
    return inv_freq * (1.0 - ramp) + inv_freq / rope.factor * ramp
