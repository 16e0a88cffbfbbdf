"""From a family's few differences to a DecoderSpec: the part that all dense attention models share.

A `Family` says how one architecture differs from the others; `describe_family` reads the sizes that every one of them stores
under the same GGUF keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from edgewise.architectures.keys import Keys
from edgewise.architectures.model_map import ModelMap
from edgewise.architectures.rope import Pairing, rope_spec
from edgewise.architectures.tensors import claim_tensors
from edgewise.checkpoints import Checkpoint
from edgewise.core.errors import CheckpointError
from edgewise.core.spec import ActivationKind, AttentionSpec, DecoderSpec, LayerSpec, MlpSpec

# Keys that change the arithmetic in a way these families do not have, with the value that means "off".
REFUSED_KEYS: dict[str, object] = {
    "expert_count": 0,
    "embedding_scale": 1.0,
    "residual_scale": 1.0,
    "logit_scale": 1.0,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
    "attention.temperature_scale": 0.0,
    "attention.causal": True,
    "attention.chunk_size": 0,
    "use_parallel_residual": False,
    "pooling_type": 0,
    "rope.dimension_sections": None,
    "rope.scaling.yarn_log_multiplier": 0.0,
    "nextn_predict_layers": 0,
}

AttentionRule = Callable[[Keys, int, AttentionSpec], AttentionSpec]
"""`f(keys, layer, attention)`: what one layer's attention becomes in this family."""


@dataclass(frozen=True, slots=True)
class Family:
    """What sets one architecture apart. `attention` may change each layer's attention; `finish` the whole spec."""

    name: str
    pairing: Pairing = "half"
    activation: ActivationKind = "silu"
    qk_norm: bool = False
    post_norms: tuple[str, str] | None = None  # tensors of the sandwich norms after attention and MLP
    fused: bool = False  # attn_qkv and a doubled ffn_up
    sliding_window: bool = False  # whether the family knows the sliding window key
    attention: AttentionRule | None = None
    finish: Callable[[Keys, DecoderSpec], DecoderSpec] | None = None


def describe_family(checkpoint: Checkpoint, family: Family) -> ModelMap:
    """Describe a checkpoint of a dense attention family.

    Raises CheckpointError for missing or contradictory keys and tensors, UnsupportedModelError for features outside it.
    """
    keys = Keys(checkpoint, family.name)
    _refuse_features(keys, family)
    vocab_size, embed_dim = _embedding_shape(checkpoint, keys)
    num_layers = keys.size("block_count")
    if num_layers > len(checkpoint.tensors):
        raise keys.bad(
            "block_count", f"{num_layers} layers cannot be right with {len(checkpoint.tensors)} tensors"
        )
    layers = tuple(_layer(checkpoint, keys, family, index, embed_dim) for index in range(num_layers))
    spec = DecoderSpec(
        architecture=family.name,
        vocab_size=vocab_size,
        embed_dim=embed_dim,
        max_positions=keys.size("context_length"),
        layers=layers,
        norm="rms",
        norm_eps=keys.positive("attention.layer_norm_rms_epsilon"),
        tied_head="output.weight" not in checkpoint.tensors,
        logit_soft_cap=keys.number("final_logit_softcapping", 0.0),
    )
    if family.finish:
        spec = family.finish(keys, spec)
    return ModelMap(spec, claim_tensors(checkpoint, spec, fused=family.fused, post_norms=family.post_norms))


def _refuse_features(keys: Keys, family: Family) -> None:
    for name, off in REFUSED_KEYS.items():
        value = keys.get(name, off)
        if value != off:
            raise keys.unsupported(name, f"the value {value!r} asks for something {family.name} lacks here")
    if not family.sliding_window and keys.get("attention.sliding_window", 0):
        raise keys.unsupported("attention.sliding_window", f"not supported for {family.name}")


def _embedding_shape(checkpoint: Checkpoint, keys: Keys) -> tuple[int, int]:
    """[V, E] from the embedding, held against the metadata."""
    info = checkpoint.tensors.get("token_embd.weight")
    if info is None:
        raise CheckpointError(f"{checkpoint.path}: tensor 'token_embd.weight' is missing")
    embed_dim = keys.size("embedding_length")
    if len(info.shape) != 2 or info.shape[1] != embed_dim:
        raise CheckpointError(
            f"{checkpoint.path}: tensor 'token_embd.weight' has shape {list(info.shape)}, "
            f"but the metadata asks for rows of {embed_dim}"
        )
    tokens = checkpoint.metadata.get("tokenizer.ggml.tokens", [])
    if isinstance(tokens, list) and len(tokens) > info.shape[0]:
        raise CheckpointError(
            f"{checkpoint.path}: tensor 'token_embd.weight' has {info.shape[0]} rows for {len(tokens)} tokens"
        )
    return info.shape[0], embed_dim


def _layer(checkpoint: Checkpoint, keys: Keys, family: Family, index: int, embed_dim: int) -> LayerSpec:
    attention = _attention(checkpoint, keys, family, index, embed_dim)
    if family.attention:
        attention = family.attention(keys, index, attention)
    mlp = MlpSpec(
        hidden_dim=keys.layer_size("feed_forward_length", index),
        activation=family.activation,
        bias=f"blk.{index}.ffn_down.bias" in checkpoint.tensors,
    )
    return LayerSpec(attention, mlp, post_norms=family.post_norms is not None)


def _attention(
    checkpoint: Checkpoint, keys: Keys, family: Family, index: int, embed_dim: int
) -> AttentionSpec:
    num_heads = keys.layer_size("attention.head_count", index)
    num_kv_heads = keys.layer_size("attention.head_count_kv", index, num_heads)
    if num_heads % num_kv_heads:
        raise keys.bad("attention.head_count_kv", f"{num_kv_heads} does not divide {num_heads} query heads")
    if "attention.key_length" not in keys and embed_dim % num_heads:
        raise keys.bad("attention.head_count", f"{num_heads} does not divide the width {embed_dim}")
    head_dim = keys.size("attention.key_length", max(1, embed_dim // num_heads))
    bias = "attn_qkv.bias" if family.fused else "attn_q.bias"
    return AttentionSpec(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        value_dim=keys.size("attention.value_length", head_dim),
        scale=keys.positive("attention.scale", 1.0 / math.sqrt(head_dim)),
        rope=rope_spec(checkpoint, keys, head_dim=head_dim, pairing=family.pairing),
        soft_cap=keys.number("attn_logit_softcapping", 0.0),
        qk_norm=family.qk_norm,
        qkv_bias=f"blk.{index}.{bias}" in checkpoint.tensors,
        out_bias=f"blk.{index}.attn_output.bias" in checkpoint.tensors,
    )


def sliding_everywhere(keys: Keys, layer: int, attention: AttentionSpec) -> AttentionSpec:
    """An attention rule: every layer sees `attention.sliding_window` tokens, unless that covers the whole window."""
    window = keys.get("attention.sliding_window", 0)
    if not window or keys.size("attention.sliding_window") >= keys.size("context_length"):
        return attention
    return replace(attention, kind="sliding", window=window)
