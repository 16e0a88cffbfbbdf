"""The description of a decoder: everything an engine directory says about a model's arithmetic.

A `DecoderSpec` is data. `architectures/` derive it from a checkpoint's own words, `build/` writes it to `engine.json`, and
`decoder/` runs it or refuses it, naming the feature it lacks. Weights are found by the canonical tensor names below.

Canonical tensor names (shapes [rows, cols], row i gives output i):
  embed.weight [V, E] · final_norm.weight/.bias [E] · head.weight [V, E] (absent when tied) · head.bias [V]
  layers.{i}.attn_norm · layers.{i}.attn.{q,k,v}.weight/.bias · layers.{i}.attn.{q_norm,k_norm}.weight [D]
  layers.{i}.attn.o.weight/.bias · layers.{i}.attn.sinks [H] · layers.{i}.attn_post_norm
  layers.{i}.mlp_norm · layers.{i}.mlp.{gate,up,down}.weight/.bias · layers.{i}.mlp_post_norm
  layers.{i}.moe.router.weight/.bias · layers.{i}.moe.experts.{gate,up,down}.weight [X, rows, cols] ·
  layers.{i}.moe.shared.{gate,up,down}.weight · layers.{i}.moe.shared_gate.weight
Norm weights are stored so that y = weight * normalised(x): a checkpoint that stores weight - 1 is converted at build.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

NormKind = Literal["rms", "layer"]
ActivationKind = Literal["silu", "gelu_tanh", "gelu", "relu2"]


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding of one attention layer.

    `pairing` "half" rotates (i, i + dim/2) (GPT-NeoX), "interleaved" rotates (2i, 2i + 1) (the order of llama GGUF files).
    """

    theta: float
    dim: int  # rotated components of a head; smaller than head_dim for partial RoPE
    pairing: Literal["half", "interleaved"] = "half"
    scaling: Literal["none", "linear", "yarn", "llama3", "longrope"] = "none"
    factor: float = 1.0
    original_max_positions: int = 0
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    attention_factor: float | None = None  # multiplies cos and sin; None: the kind's own rule
    freq_factors: tuple[float, ...] = ()  # per-pair divisors of the frequency (longrope, llama3 GGUF files)
    long_freq_factors: tuple[
        float, ...
    ] = ()  # longrope: used instead when the served window exceeds the original one
    mrope_sections: tuple[int, ...] = ()  # pairs per position component; empty: one component


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Softmax attention of one layer."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    scale: float  # multiplies q.k
    rope: RopeSpec | None  # None: no position embedding (NoPE)
    kind: Literal["full", "sliding", "chunked"] = "full"
    window: int = 0  # tokens seen including the current one (sliding), or chunk length (chunked)
    soft_cap: float = 0.0  # cap * tanh(score / cap); 0: off
    sinks: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    out_bias: bool = False


@dataclass(frozen=True, slots=True)
class RecurrentSpec:
    """A recurrent mixer in place of attention."""

    kind: Literal["gated_delta_net", "mamba2", "short_conv"]
    num_heads: int
    head_dim: int
    state_dim: int
    conv_width: int
    num_groups: int = 1


@dataclass(frozen=True, slots=True)
class MoeSpec:
    """Routed experts of one layer."""

    num_experts: int
    num_active: int
    expert_dim: int
    router: Literal["softmax", "sigmoid"]
    normalize_weights: bool
    shared_dim: int = 0
    shared_gate: bool = False
    routed_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class MlpSpec:
    """Feed-forward part of one layer."""

    hidden_dim: int
    activation: ActivationKind
    gated: bool = True
    bias: bool = False
    moe: MoeSpec | None = None


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer: mixer (attention or recurrent) and feed-forward, with their norms."""

    mixer: AttentionSpec | RecurrentSpec
    mlp: MlpSpec
    post_norms: bool = False  # sandwich: norms on the outputs of mixer and MLP, before the residual sum


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A whole decoder-only model."""

    architecture: str  # the family's name, for people
    vocab_size: int
    embed_dim: int
    max_positions: int  # the window the model was made for, tokens
    layers: tuple[LayerSpec, ...]
    norm: NormKind
    norm_eps: float
    tied_head: bool
    embed_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    logit_soft_cap: float = 0.0
    head_bias: bool = False
    extra: dict[str, object] = field(default_factory=dict)  # facts a later component needs, JSON values only
