"""Writes a transformers model as the GGUF file that llama.cpp's converter makes of it, all tensors F32.

Key and tensor names are the `gguf` package's own tables. What a converter does beyond names (rows of q and k reordered for llama, 1
added to Gemma's norms, rotary factors as tensors) is written down here from its behaviour, apart from what our loader believes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from tests.support.tiny_gguf import add_vocabulary

PERMUTED = ("llama", "mistral")
Array = npt.NDArray[np.float32]


def write_gguf(path: Path, model: Any, architecture: str) -> Path:
    """Write `model` (a transformers causal LM in float32) as `general.architecture` = `architecture`. Returns `path`."""
    config = model.config.get_text_config()
    writer = gguf.GGUFWriter(path, architecture)
    _add_sizes(writer, config)
    _add_rope(writer, config)
    _add_window(writer, config)
    add_vocabulary(writer, template=None)
    for name, values in converted_tensors(model, architecture).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def converted_tensors(model: Any, architecture: str) -> dict[str, Array]:
    """GGUF name -> values of every tensor, the rotary factors among them."""
    config = model.config.get_text_config()
    # No converter writes "mistral"; such files would have llama's tensors.
    arch = next(
        a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture.replace("mistral", "llama")
    )
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    tensors = {}
    for name, parameter in model.named_parameters():  # a tied head is no parameter of its own
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, f"{architecture} has no place for {name}"
        tensors[stored] = _converted(name, parameter.detach().numpy(), config, architecture)
    return {**tensors, **_rope_factors(config)}


def _converted(name: str, values: Array, config: Any, architecture: str) -> Array:
    if architecture == "gemma3" and name.endswith("norm.weight"):
        return values + np.float32(1)
    if architecture in PERMUTED:
        for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
            if part in name:
                return halves_to_neighbours(values, heads)
    return values


def halves_to_neighbours(values: Array, heads: int) -> Array:
    """Reorder each head's rows so that the rotary pair (i, i + D/2) becomes (2i, 2i + 1)."""
    rows = values.reshape(heads, 2, -1, *values.shape[1:])
    return np.ascontiguousarray(np.swapaxes(rows, 1, 2).reshape(values.shape))


def _add_sizes(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if getattr(config, "head_dim", None) and writer.arch != "phi3":
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if getattr(config, "final_logit_softcapping", None):
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def rope_parameters(config: Any) -> dict[str, Any]:
    """The rotary parameters of the full-attention layers."""
    parameters: dict[str, Any] = config.rope_parameters
    return parameters.get("full_attention", parameters)


def _rotary_dim(config: Any) -> int:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(head_dim * rope_parameters(config).get("partial_rotary_factor", 1.0))


def _add_rope(writer: gguf.GGUFWriter, config: Any) -> None:
    rope = rope_parameters(config)
    writer.add_rope_freq_base(rope["rope_theta"])
    if writer.arch in (*PERMUTED, "phi3"):
        writer.add_rope_dimension_count(_rotary_dim(config))
    match rope.get("rope_type"):
        case "linear":
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(rope["factor"])
        case "yarn":
            _add_yarn(writer, rope)
        case "longrope":
            original = rope["original_max_position_embeddings"]
            longer = config.max_position_embeddings / original
            writer.add_rope_scaling_orig_ctx_len(original)
            writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(longer) / math.log(original)))


def _add_yarn(writer: gguf.GGUFWriter, rope: dict[str, Any]) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    optional = {
        "attention_factor": writer.add_rope_scaling_yarn_attn_factor,
        "beta_fast": writer.add_rope_scaling_yarn_beta_fast,
        "beta_slow": writer.add_rope_scaling_yarn_beta_slow,
    }
    for name, add in optional.items():
        if rope.get(name) is not None:
            add(rope[name])


def _add_window(writer: gguf.GGUFWriter, config: Any) -> None:
    window = getattr(config, "sliding_window", None)
    if writer.arch == "phi3":
        writer.add_sliding_window(window or 0)
    elif writer.arch in ("mistral", "gemma3") and window:
        writer.add_sliding_window(window)
    if writer.arch != "gemma3":
        return
    sliding = [kind == "sliding_attention" for kind in config.layer_types]
    if sliding != [bool((layer + 1) % 6) for layer in range(len(sliding))]:
        writer.add_sliding_window_pattern(sliding)
    local = config.rope_parameters["sliding_attention"]["rope_theta"]
    if local != 10000.0:
        writer.add_rope_freq_base_swa(local)


def _rope_factors(config: Any) -> dict[str, Array]:
    rope = rope_parameters(config)
    if rope.get("rope_type") == "llama3":
        return {"rope_freqs.weight": _llama3_factors(rope, _rotary_dim(config))}
    if rope.get("rope_type") == "longrope":
        kinds = ("long", "short")
        return {f"rope_factors_{kind}.weight": np.array(rope[f"{kind}_factor"], np.float32) for kind in kinds}
    return {}


def _llama3_factors(rope: dict[str, Any], dim: int) -> Array:
    """What each pair's frequency is divided by: 1 for short waves, `factor` for long ones, a blend between."""
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    factors = []
    for pair in range(dim // 2):
        wave = 2 * math.pi * rope["rope_theta"] ** (2 * pair / dim)
        turns = rope["original_max_position_embeddings"] / wave
        if turns > high:
            factors.append(1.0)
        elif turns < low:
            factors.append(factor)
        else:
            smooth = (turns - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)
