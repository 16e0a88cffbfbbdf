"""Writes tiny random GGUF models of every architecture, with a small byte-level BPE vocabulary and a ChatML template.

The files come from the `gguf` package's writer, so reading them tests our reader against another's idea of the format. Weights are
random blocks of the wanted type whose scales are set so that values have about the spread a trained model's have: no quantiser is
needed, and every bit pattern of the codes occurs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gemma3", "phi3")

MERGES = [
    *("Ġ t", "h e", "Ġt he", "i n", "e r", "a n", "o n", "r e", "Ġ a", "in g", "Ġ s", "e s", "l l"),
    *("Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "H e", "He ll", "Hell o", "Ġ f", "d e", "Ġ {", "0 0"),
]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# Offsets of the f16 scale (and minimum) fields in a block, each with its value per unit of the wanted spread: a code's own spread
# times its integer scale's, and minima that centre the codes.
SCALES: dict[str, tuple[tuple[int, float], ...]] = {
    "Q4_0": ((0, 1 / 4.6),),
    "Q4_1": ((0, 1 / 4.6), (2, -7.5 / 4.6)),
    "Q5_0": ((0, 1 / 9.2),),
    "Q5_1": ((0, 1 / 9.2), (2, -15.5 / 9.2)),
    "Q8_0": ((0, 1 / 74),),
    "Q2_K": ((80, 1 / 10), (82, 1.5 / 10)),
    "Q3_K": ((108, 1 / 42),),
    "Q4_K": ((0, 1 / 170), (2, 7.5 / 170)),
    "Q5_K": ((0, 1 / 340), (2, 15.5 / 340)),
    "Q6_K": ((208, 1 / 1370),),
    "IQ4_NL": ((0, 1 / 70),),
    "IQ4_XS": ((0, 1 / 1300),),
    "TQ1_0": ((52, 1.2),),
    "TQ2_0": ((64, 1.2),),
    "IQ2_XXS": ((0, 1 / 50),),
    "IQ2_XS": ((0, 1 / 50),),
    "IQ2_S": ((0, 1 / 50),),
    "IQ3_XXS": ((0, 1 / 150),),
    "IQ3_S": ((0, 1 / 150),),
    "IQ1_S": ((0, 1 / 7),),
    "IQ1_M": (),
    "MXFP4": (),
}


@dataclass(frozen=True)
class TinyModel:
    """Sizes of a tiny model. K-quants need `embed_dim` and `hidden_dim` that are multiples of 256."""

    architecture: str = "llama"
    dtype: str = "F32"  # of the matrices; vectors are always F32
    num_layers: int = 2
    embed_dim: int = 64
    hidden_dim: int = 96
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    context_length: int = 512
    tied: bool = True
    seed: int = 0
    sliding_window: int = 8  # gemma3, and mistral and phi3 when not 0
    llama3_factors: bool = False  # a rope_freqs.weight tensor
    longrope: bool = False  # phi3
    template: str | None = TEMPLATE
    extra_keys: dict[str, Any] = field(default_factory=dict)


def byte_tokens() -> list[str]:
    """The 256 single-byte tokens of byte-level BPE, by byte value, in the alphabet of GPT-2."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in printable}
    for shift, byte in enumerate(b for b in range(256) if b not in table):
        table[byte] = chr(256 + shift)
    return [table[byte] for byte in range(256)]


def vocabulary() -> list[str]:
    """All tokens in order of their ids: bytes, merges, control tokens."""
    return [*byte_tokens(), *(merge.replace(" ", "") for merge in MERGES), *SPECIALS]


def random_blocks(
    dtype: str, rows: int, cols: int, spread: float, rng: np.random.Generator
) -> npt.NDArray[Any]:
    """Random values of a type, with about the given spread: f32/f16 [rows, cols], or bytes u8[rows, row_bytes]."""
    if dtype in ("F32", "F16", "BF16", "F64"):
        values = (rng.standard_normal((rows, cols)) * spread).astype(np.float32)
        if dtype == "BF16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(rows, cols * 2)
        return values.astype({"F32": np.float32, "F16": np.float16, "F64": np.float64}[dtype])
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[dtype]]
    blocks = rng.integers(0, 256, (rows * cols // block_size, block_bytes), dtype=np.uint8)
    for offset, factor in SCALES[dtype]:
        scales = (factor * spread * rng.uniform(0.5, 1.5, len(blocks))).astype(np.float16)
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    if dtype == "IQ1_M":  # its f16 scale lies in the top four bits of the last four words, 2^-8 here
        words = blocks[:, 48:].view(np.uint16)
        words[:] = (words & 0x0FFF) | np.array([0x0000, 0x0000, 0xC000, 0x1000], dtype=np.uint16)
    if dtype == "MXFP4":
        exponent = round(math.log2(spread / 5)) + 128
        blocks[:, 0] = rng.integers(exponent - 1, exponent + 2, len(blocks))
    return blocks.reshape(rows, -1)


def write_tiny_gguf(path: Path, model: TinyModel | None = None, **changes: Any) -> Path:
    """Write a model file; `changes` are fields of TinyModel. The same arguments give the same bytes. Returns `path`."""
    model = model or TinyModel(**changes)
    writer = gguf.GGUFWriter(path, model.architecture)
    _add_keys(writer, model)
    add_vocabulary(writer, model.template)
    for name, (shape, spread) in tensor_shapes(model).items():
        _add_tensor(writer, model, name, shape, spread)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensor_shapes(model: TinyModel) -> dict[str, tuple[tuple[int, ...], float]]:
    """Name of every tensor to its shape (row-major) and the spread of its values; vectors lie round one."""
    e, hidden, depth = model.embed_dim, model.hidden_dim, model.head_dim
    q, kv = model.num_heads * depth, model.num_kv_heads * depth
    vocab = len(vocabulary())
    shapes: dict[str, tuple[tuple[int, ...], float]] = {"token_embd.weight": ((vocab, e), 1 / math.sqrt(e))}
    for index in range(model.num_layers):
        block = f"blk.{index}"
        shapes[f"{block}.attn_norm.weight"] = ((e,), 0.1)
        for part, shape in _matrices(model, e, hidden, q, kv).items():
            shapes[f"{block}.{part}.weight"] = (shape, 1 / math.sqrt(shape[1]))
        if model.architecture == "qwen2":
            for part, width in (("q", q), ("k", kv), ("v", kv)):
                shapes[f"{block}.attn_{part}.bias"] = ((width,), 0.1)
        if model.architecture in ("qwen3", "gemma3"):
            shapes[f"{block}.attn_q_norm.weight"] = ((depth,), 0.1)
            shapes[f"{block}.attn_k_norm.weight"] = ((depth,), 0.1)
        if model.architecture == "gemma3":
            shapes[f"{block}.post_attention_norm.weight"] = ((e,), 0.1)
            shapes[f"{block}.post_ffw_norm.weight"] = ((e,), 0.1)
        shapes[f"{block}.ffn_norm.weight"] = ((e,), 0.1)
    shapes["output_norm.weight"] = ((e,), 0.1)
    if not model.tied:
        shapes["output.weight"] = ((vocab, e), 1 / math.sqrt(e))
    if model.llama3_factors:
        shapes["rope_freqs.weight"] = ((depth // 2,), 0.1)
    if model.longrope:
        shapes["rope_factors_short.weight"] = ((depth // 2,), 0.1)
        shapes["rope_factors_long.weight"] = ((depth // 2,), 0.1)
    return shapes


def _matrices(model: TinyModel, e: int, hidden: int, q: int, kv: int) -> dict[str, tuple[int, int]]:
    if model.architecture == "phi3":
        return {
            "attn_qkv": (q + 2 * kv, e),
            "attn_output": (e, q),
            "ffn_up": (2 * hidden, e),
            "ffn_down": (e, hidden),
        }
    attention = {"attn_q": (q, e), "attn_k": (kv, e), "attn_v": (kv, e), "attn_output": (e, q)}
    return {**attention, "ffn_gate": (hidden, e), "ffn_up": (hidden, e), "ffn_down": (e, hidden)}


def _add_tensor(
    writer: gguf.GGUFWriter, model: TinyModel, name: str, shape: tuple[int, ...], spread: float
) -> None:
    rng = np.random.default_rng([model.seed, *name.encode()])
    if len(shape) == 1:
        centre = 0.0 if name.endswith(".bias") else 1.0
        writer.add_tensor(name, (centre + spread * rng.uniform(-1, 1, shape)).astype(np.float32))
        return
    data = random_blocks(model.dtype, *shape, spread, rng)
    writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[model.dtype])


def _add_keys(writer: gguf.GGUFWriter, model: TinyModel) -> None:
    prefix = model.architecture
    keys: dict[str, Any] = {
        "general.name": f"Tiny {prefix}",
        f"{prefix}.block_count": model.num_layers,
        f"{prefix}.context_length": model.context_length,
        f"{prefix}.embedding_length": model.embed_dim,
        f"{prefix}.feed_forward_length": model.hidden_dim,
        f"{prefix}.attention.head_count": model.num_heads,
        f"{prefix}.attention.head_count_kv": model.num_kv_heads,
        f"{prefix}.attention.key_length": model.head_dim,
        f"{prefix}.attention.value_length": model.head_dim,
        f"{prefix}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{prefix}.rope.freq_base": 10000.0,
    }
    if model.sliding_window and prefix in ("gemma3", "mistral", "phi3"):
        keys[f"{prefix}.attention.sliding_window"] = model.sliding_window
    if model.longrope:
        keys[f"{prefix}.rope.scaling.original_context_length"] = model.context_length // 4
    for key, value in {**keys, **model.extra_keys}.items():
        _add_key(writer, key, value)


def _add_key(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def add_vocabulary(writer: gguf.GGUFWriter, template: str | None) -> None:
    """The tokenizer keys of `vocabulary()`, and the chat template where there is one."""
    tokens = vocabulary()
    control = gguf.TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in SPECIALS else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    if template is not None:
        writer.add_chat_template(template)
