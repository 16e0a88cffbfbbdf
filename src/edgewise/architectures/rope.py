"""Rotary embedding parameters from GGUF keys: plain, linear, YaRN and longrope scaling, and stored frequency factors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from edgewise.architectures.keys import Keys
from edgewise.checkpoints import Checkpoint
from edgewise.core.errors import CheckpointError
from edgewise.core.spec import RopeSpec

Pairing = Literal["half", "interleaved"]

FACTORS = "rope_freqs.weight"
SHORT_FACTORS, LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"
ROPE_TENSORS = (FACTORS, SHORT_FACTORS, LONG_FACTORS)


def rope_spec(checkpoint: Checkpoint, keys: Keys, *, head_dim: int, pairing: Pairing) -> RopeSpec:
    """The rotary embedding that a checkpoint's `rope.*` keys and factor tensors mean.

    Raises UnsupportedModelError naming the key for an unknown kind of scaling.
    """
    dim = keys.size("rope.dimension_count", head_dim)
    if dim > head_dim or dim % 2:
        raise keys.bad(
            "rope.dimension_count", f"must be even and at most the head size {head_dim}, got {dim}"
        )
    theta = keys.positive("rope.freq_base", 10000.0)
    if LONG_FACTORS in checkpoint.tensors:
        return _longrope(checkpoint, keys, RopeSpec(theta, dim, pairing, scaling="longrope"))
    factors = _factors(checkpoint, FACTORS, dim)
    sharpness = keys.positive("rope.scaling.attn_factor", 1.0)
    plain = RopeSpec(
        theta, dim, pairing, attention_factor=None if sharpness == 1.0 else sharpness, freq_factors=factors
    )
    kind = keys.get("rope.scaling.type", "linear" if "rope.scale_linear" in keys else "none")
    factor = keys.positive("rope.scaling.factor", keys.positive("rope.scale_linear", 1.0))
    if kind not in ("none", "linear", "yarn"):
        missing = f" without {LONG_FACTORS}" if kind == "longrope" else ""
        raise keys.unsupported(
            "rope.scaling.type", f"{kind!r}{missing} is not supported (none, linear, yarn, longrope are)"
        )
    if kind == "none" or factor == 1.0:
        return plain
    return replace(plain, scaling="linear", factor=factor) if kind == "linear" else _yarn(keys, plain, factor)


def _yarn(keys: Keys, plain: RopeSpec, factor: float) -> RopeSpec:
    """YaRN. A stored yarn_attn_factor is the model's own in place of 1 + ln(factor) / 10; attn_factor multiplies either."""
    if keys.number("rope.scaling.yarn_ext_factor", 1.0) != 1.0:
        raise keys.unsupported("rope.scaling.yarn_ext_factor", "values other than 1 are not supported")
    own = keys.positive("rope.scaling.yarn_attn_factor", 1.0 + 0.1 * math.log(factor))
    return replace(
        plain,
        scaling="yarn",
        factor=factor,
        original_max_positions=keys.size("rope.scaling.original_context_length", keys.size("context_length")),
        beta_fast=keys.positive("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=keys.positive("rope.scaling.yarn_beta_slow", 1.0),
        attention_factor=own * (plain.attention_factor or 1.0),
    )


def _longrope(checkpoint: Checkpoint, keys: Keys, plain: RopeSpec) -> RopeSpec:
    """LongRoPE: one list of factors for windows up to the original one, another beyond it."""
    window = keys.size("context_length")
    original = keys.size("rope.scaling.original_context_length", window)
    own = math.sqrt(1.0 + math.log(window / original) / math.log(original)) if window > original > 1 else 1.0
    return RopeSpec(
        plain.theta,
        plain.dim,
        plain.pairing,
        scaling="longrope",
        factor=window / original,
        original_max_positions=original,
        attention_factor=keys.positive("rope.scaling.attn_factor", own),
        freq_factors=_factors(checkpoint, SHORT_FACTORS, plain.dim),
        long_freq_factors=_factors(checkpoint, LONG_FACTORS, plain.dim),
    )


def _factors(checkpoint: Checkpoint, name: str, dim: int) -> tuple[float, ...]:
    """Per-pair frequency divisors stored as a tensor; empty when absent."""
    if name not in checkpoint.tensors:
        return ()
    values = checkpoint.dequantize(name).reshape(-1)
    if len(values) != dim // 2:
        raise CheckpointError(
            f"{checkpoint.path}: tensor {name!r} has {len(values)} values, expected {dim // 2}"
        )
    if not all(math.isfinite(v) and v > 0 for v in values):
        raise CheckpointError(f"{checkpoint.path}: tensor {name!r} holds values that are not above zero")
    return tuple(float(v) for v in values)
