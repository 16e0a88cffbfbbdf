"""Tiny models of every family: the DecoderSpec they mean, the tensors they map, and what is refused by name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from edgewise.architectures import FAMILIES, ModelMap, describe
from edgewise.checkpoints import open_checkpoint
from edgewise.core.errors import CheckpointError, UnsupportedModelError
from edgewise.core.spec import AttentionSpec
from tests.support.tiny_gguf import ARCHITECTURES, write_tiny_gguf


def described(tmp_path: Path, **changes: Any) -> ModelMap:
    return describe(open_checkpoint(write_tiny_gguf(tmp_path / "tiny.gguf", **changes)))


def attention(model: ModelMap, layer: int = 0) -> AttentionSpec:
    mixer = model.spec.layers[layer].mixer
    assert isinstance(mixer, AttentionSpec)
    return mixer


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_sizes_come_from_the_keys(name: str, tmp_path: Path) -> None:
    spec = described(tmp_path, architecture=name, num_layers=3, head_dim=32).spec
    a = spec.layers[0].mixer
    assert isinstance(a, AttentionSpec)
    assert (spec.architecture, len(spec.layers), spec.embed_dim, spec.max_positions) == (name, 3, 64, 512)
    assert (a.num_heads, a.num_kv_heads, a.head_dim, a.value_dim) == (4, 2, 32, 32)
    assert a.scale == pytest.approx(1 / math.sqrt(32))
    assert spec.layers[0].mlp.hidden_dim == 96
    assert spec.norm_eps == pytest.approx(1e-5)


def test_every_family_has_a_tiny_model() -> None:
    assert set(FAMILIES) == set(ARCHITECTURES)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_canonical_tensors_are_complete(name: str, tmp_path: Path) -> None:
    model = described(tmp_path, architecture=name, tied=False)
    expected = {"embed.weight", "final_norm.weight", "head.weight"}
    for i in range(2):
        parts = [
            "attn_norm",
            "mlp_norm",
            "attn.q",
            "attn.k",
            "attn.v",
            "attn.o",
            "mlp.gate",
            "mlp.up",
            "mlp.down",
        ]
        parts += ["attn.q_norm", "attn.k_norm"] if name in ("qwen3", "gemma3") else []
        parts += ["attn_post_norm", "mlp_post_norm"] if name == "gemma3" else []
        expected |= {f"layers.{i}.{part}.weight" for part in parts}
        expected |= {f"layers.{i}.attn.{part}.bias" for part in "qkv" if name == "qwen2"}
    assert set(model.tensors) == expected


def test_tied_heads_have_no_tensor(tmp_path: Path) -> None:
    model = described(tmp_path, tied=True)
    assert model.spec.tied_head
    assert "head.weight" not in model.tensors


def test_llama_pairs_neighbours_and_others_halves(tmp_path: Path) -> None:
    pairings = {}
    for name in ARCHITECTURES:
        rope = attention(described(tmp_path, architecture=name)).rope
        assert rope is not None
        pairings[name] = rope.pairing
    assert {name for name, pairing in pairings.items() if pairing == "interleaved"} == {"llama", "mistral"}


def test_llama3_factors_are_read_from_their_tensor(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", llama3_factors=True)
    checkpoint = open_checkpoint(path)
    rope = attention(describe(checkpoint)).rope
    assert rope is not None
    assert rope.freq_factors == tuple(checkpoint.dequantize("rope_freqs.weight").tolist())
    assert rope.scaling == "none"  # the factors say it all


def test_qwen2_has_biases_qwen3_head_norms(tmp_path: Path) -> None:
    qwen2, qwen3 = (attention(described(tmp_path, architecture=name)) for name in ("qwen2", "qwen3"))
    assert (qwen2.qkv_bias, qwen2.qk_norm) == (True, False)
    assert (qwen3.qkv_bias, qwen3.qk_norm) == (False, True)


def test_gemma3_layers_alternate(tmp_path: Path) -> None:
    keys = {
        "gemma3.rope.freq_base": 1e6,
        "gemma3.rope.scaling.type": "linear",
        "gemma3.rope.scaling.factor": 8.0,
    }
    model = described(tmp_path, architecture="gemma3", num_layers=7, extra_keys=keys)
    kinds = [attention(model, layer).kind for layer in range(7)]
    assert kinds == ["sliding"] * 5 + ["full", "sliding"]
    local, full = attention(model, 0), attention(model, 5)
    assert local.rope is not None and full.rope is not None
    assert (local.window, local.rope.theta, local.rope.scaling) == (8, 10000.0, "none")
    assert (full.window, full.rope.theta, full.rope.factor) == (0, 1e6, 8.0)
    assert model.spec.embed_scale == pytest.approx(8.0)
    assert model.spec.layers[0].post_norms
    assert model.spec.layers[0].mlp.activation == "gelu_tanh"


def test_gemma3_27b_scales_queries_by_width_over_heads(tmp_path: Path) -> None:
    model = described(tmp_path, architecture="gemma3", num_layers=62, head_dim=32)
    assert attention(model).scale == pytest.approx(1 / math.sqrt(64 / 4))


def test_phi3_slices_its_fused_tensors(tmp_path: Path) -> None:
    model = described(tmp_path, architecture="phi3")
    rows = {part: model.tensors[f"layers.1.attn.{part}.weight"] for part in "qkv"}
    assert {source.name for source in rows.values()} == {"blk.1.attn_qkv.weight"}
    assert [rows[part].rows for part in "qkv"] == [slice(0, 64), slice(64, 96), slice(96, 128)]
    assert model.tensors["layers.0.mlp.gate.weight"].rows == slice(0, 96)
    assert model.tensors["layers.0.mlp.up.weight"].rows == slice(96, 192)


def test_phi3_longrope_keeps_both_lists(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", architecture="phi3", longrope=True)
    checkpoint = open_checkpoint(path)
    rope = attention(describe(checkpoint)).rope
    assert rope is not None
    assert (rope.scaling, rope.original_max_positions) == ("longrope", 128)
    assert rope.freq_factors == tuple(checkpoint.dequantize("rope_factors_short.weight").tolist())
    assert rope.long_freq_factors == tuple(checkpoint.dequantize("rope_factors_long.weight").tolist())
    assert rope.attention_factor == pytest.approx(math.sqrt(1 + math.log(4) / math.log(128)))


def test_windows_as_long_as_the_context_are_full_attention(tmp_path: Path) -> None:
    assert attention(described(tmp_path, architecture="phi3", sliding_window=512)).kind == "full"
    assert attention(described(tmp_path, architecture="phi3", sliding_window=511)).window == 511


def test_yarn(tmp_path: Path) -> None:
    keys = {
        "qwen2.rope.scaling.type": "yarn",
        "qwen2.rope.scaling.factor": 4.0,
        "qwen2.rope.scaling.original_context_length": 128,
    }
    rope = attention(described(tmp_path, architecture="qwen2", extra_keys=keys)).rope
    assert rope is not None
    assert (rope.scaling, rope.factor, rope.original_max_positions) == ("yarn", 4.0, 128)
    assert rope.attention_factor == pytest.approx(1 + 0.1 * math.log(4))


def test_a_stored_yarn_factor_replaces_the_kinds_own(tmp_path: Path) -> None:
    keys = {
        "qwen3.rope.scaling.type": "yarn",
        "qwen3.rope.scaling.factor": 8.0,
        "qwen3.rope.scaling.yarn_attn_factor": 1.5,
        "qwen3.rope.scaling.yarn_beta_fast": 8.0,
        "qwen3.rope.scaling.yarn_beta_slow": 0.5,
    }
    rope = attention(described(tmp_path, architecture="qwen3", extra_keys=keys)).rope
    assert rope is not None
    assert (rope.attention_factor, rope.beta_fast, rope.beta_slow) == (1.5, 8.0, 0.5)


@pytest.mark.parametrize(("kind", "own"), [("none", 1.0), ("linear", 1.0), ("yarn", 1 + 0.1 * math.log(4))])
def test_the_attention_factor_multiplies_whatever_the_scaling(kind: str, own: float, tmp_path: Path) -> None:
    keys = {
        "llama.rope.scaling.type": kind,
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.attn_factor": 1.25,
    }
    rope = attention(described(tmp_path, extra_keys=keys)).rope
    assert rope is not None
    assert (rope.scaling, rope.attention_factor) == (kind, pytest.approx(1.25 * own))


def test_sizes_may_be_given_per_layer(tmp_path: Path) -> None:
    model = described(tmp_path, extra_keys={"llama.attention.head_count_kv": [2, 2]})
    assert attention(model, 1).num_kv_heads == 2


UNSUPPORTED = {
    "experts": ({"llama.expert_count": 8}, "llama.expert_count"),
    "embedding scale": ({"llama.embedding_scale": 12.0}, "llama.embedding_scale"),
    "sliding window": ({"llama.attention.sliding_window": 64}, "llama.attention.sliding_window"),
    "encoder": ({"llama.attention.causal": False}, "llama.attention.causal"),
    "rope kind": (
        {"llama.rope.scaling.type": "dizzy", "llama.rope.scaling.factor": 2.0},
        "llama.rope.scaling.type",
    ),
    "extrapolation": (
        {
            "llama.rope.scaling.type": "yarn",
            "llama.rope.scaling.factor": 2.0,
            "llama.rope.scaling.yarn_ext_factor": 0.5,
        },
        "llama.rope.scaling.yarn_ext_factor",
    ),
    "a scaling nobody knows, by no factor": (
        {"llama.rope.scaling.type": "wobble"},
        "llama.rope.scaling.type.*'wobble' is not supported",
    ),
    "longrope without factors": (
        {"llama.rope.scaling.type": "longrope"},
        "'longrope' without rope_factors_long.weight",
    ),
    "adapter": ({"general.type": "adapter"}, "general.type"),
}

CONTRADICTORY = {
    "heads": ({"llama.attention.head_count_kv": 3}, "llama.attention.head_count_kv"),
    "text for a number": ({"llama.block_count": "two"}, "llama.block_count"),
    "zero": ({"llama.block_count": 0}, "llama.block_count"),
    "odd rotation": ({"llama.rope.dimension_count": 7}, "llama.rope.dimension_count"),
    "not a number": (
        {"llama.attention.layer_norm_rms_epsilon": math.nan},
        "llama.attention.layer_norm_rms_epsilon",
    ),
    "short list": ({"llama.attention.head_count_kv": [2]}, "llama.attention.head_count_kv"),
    "shape": (
        {"llama.feed_forward_length": 100},
        r"'blk.0.ffn_gate.weight' has shape \[96, 64\].*\[100, 64\]",
    ),
    "width": ({"llama.embedding_length": 128}, r"token_embd.weight' has shape \[\d+, 64\]"),
    "absurd layers": (
        {"llama.block_count": 2**31 - 1},
        "llama.block_count.*2147483647 layers cannot be right",
    ),
    "more layers": ({"llama.block_count": 3}, r"'blk.2.attn_norm.weight' is missing"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_features_are_named(name: str, tmp_path: Path) -> None:
    keys, message = UNSUPPORTED[name]
    with pytest.raises(UnsupportedModelError, match=message):
        described(tmp_path, extra_keys=keys)


@pytest.mark.parametrize("name", CONTRADICTORY)
def test_contradictions_are_named(name: str, tmp_path: Path) -> None:
    keys, message = CONTRADICTORY[name]
    with pytest.raises(CheckpointError, match=message):
        described(tmp_path, extra_keys=keys)


def test_tensors_the_family_does_not_know_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"'blk\.2\.attn_k\.weight' and 8 more"):
        described(tmp_path, num_layers=3, extra_keys={"llama.block_count": 2})


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "marvin")
    writer.add_tensor("t", np.zeros(8, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match="'marvin' is not supported") as caught:
        describe(open_checkpoint(tmp_path / "m.gguf"))
    assert "qwen2" in (caught.value.hint or "")
