"""Gemma 3, text part: sandwich norms, q and k norms, five sliding layers to one global, scaled embedding.

GGUF files store norm weights with the 1 already added. The local layers keep their own rotary base and no scaling.
"""

from __future__ import annotations

import math
from dataclasses import replace

from edgewise.architectures.family import Family
from edgewise.architectures.keys import Keys
from edgewise.core.spec import AttentionSpec, DecoderSpec, RopeSpec

LOCAL_THETA = 10000.0
PATTERN = 6  # every sixth layer is global
LAYERS_OF_27B = 62  # the one size whose query scale is not the head size's: width / heads instead


def _attention(keys: Keys, layer: int, attention: AttentionSpec) -> AttentionSpec:
    if keys.size("block_count") == LAYERS_OF_27B:
        per_head = keys.size("embedding_length") / attention.num_heads
        attention = replace(attention, scale=1.0 / math.sqrt(per_head))
    if not _is_sliding(keys, layer):
        return attention
    rope = attention.rope
    assert rope is not None
    local = RopeSpec(keys.positive("rope.freq_base_swa", LOCAL_THETA), rope.dim, rope.pairing)
    return replace(attention, kind="sliding", window=keys.size("attention.sliding_window"), rope=local)


def _is_sliding(keys: Keys, layer: int) -> bool:
    pattern = keys.get("attention.sliding_window_pattern", PATTERN)
    if isinstance(pattern, list):
        if layer >= len(pattern):
            raise keys.bad("attention.sliding_window_pattern", f"has no value for layer {layer}")
        return bool(pattern[layer])
    return (layer + 1) % keys.size("attention.sliding_window_pattern", PATTERN) != 0


def _finish(keys: Keys, spec: DecoderSpec) -> DecoderSpec:
    return replace(spec, embed_scale=math.sqrt(spec.embed_dim))


FAMILY = Family(
    name="gemma3",
    activation="gelu_tanh",
    qk_norm=True,
    post_norms=("post_attention_norm", "post_ffw_norm"),
    sliding_window=True,
    attention=_attention,
    finish=_finish,
)
