"""How much memory a model will take at a context length and a number of users, told from what its files say of themselves.

Keys and values are counted for every layer that has heads for them: for the whole context, or for a layer's own window where the engine
forgets what has left it. Sources: GGUF's metadata keys, and config.json of published checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgewise.build.engine_dir import is_engine_dir, load_engine_dir
from edgewise.build.inspect import kv_bytes
from edgewise.checkpoints import open_checkpoint
from edgewise.core.errors import EdgewiseError

WORKING_BYTES = 512 << 20  # buffers of a step, and the program itself
STEP_TOKENS = 512  # a layer with a window keeps those of the step being read besides
_VALUE_BYTES = 2
_FULL_EVERY = {"gemma2": 2, "gpt-oss": 2, "cohere2": 4, "gemma3": 6}
"""Architecture -> of so many layers the last one sees everything, where files name a window but not whose it is. Others: counted in full."""


@dataclass(frozen=True, slots=True)
class CacheForm:
    """How an engine keeps keys and values. `value_bytes`: of one number, 2 at 16 bits. `forgets`: what has left a layer's window."""

    value_bytes: float = _VALUE_BYTES
    forgets: bool = False


WHOLE = CacheForm()


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes, keys and values at 16 bits. `window`: tokens the model was made for, None where nothing says.

    `sliding_bytes_per_token`: the part of `kv_bytes_per_token` that is of layers which see the last `sliding_tokens` only.
    """

    weight_bytes: int
    kv_bytes_per_token: int
    window: int | None = None
    sliding_bytes_per_token: int = 0
    sliding_tokens: int = 0

    def kv_bytes(self, context: int, users: int, form: CacheForm = WHOLE) -> int:
        """Of `users` conversations of `context` tokens."""
        sliding = self.sliding_bytes_per_token if form.forgets else 0
        kept = min(context, self.sliding_tokens + STEP_TOKENS)
        one = (self.kv_bytes_per_token - sliding) * context + sliding * kept
        return round(one * users * form.value_bytes / _VALUE_BYTES)

    def total_bytes(self, context: int, users: int, form: CacheForm = WHOLE) -> int:
        return self.weight_bytes + self.kv_bytes(context, users, form) + WORKING_BYTES


def need_of(model: Path) -> Need | None:
    """Of a GGUF file, an engine directory or a checkpoint folder; None where the files do not tell."""
    try:
        if is_engine_dir(model):
            return _of_engine_dir(model)
        if model.is_dir() and not any(model.glob("*.gguf")):
            return _of_folder(model)
        return _of_gguf(model)
    except (EdgewiseError, OSError, ValueError, KeyError, TypeError):
        return None


def _of_engine_dir(path: Path) -> Need:
    engine = load_engine_dir(path)
    per_block = kv_bytes(engine.spec, 32)
    return Need(engine.weights.nbytes, per_block // 32, engine.spec.max_positions)


def _of_gguf(path: Path) -> Need:
    checkpoint = open_checkpoint(path)
    try:
        return gguf_need(sum(file.stat().st_size for file in checkpoint.files), checkpoint.metadata)
    finally:
        checkpoint.close()


def gguf_need(weight_bytes: int, metadata: Mapping[str, Any]) -> Need:
    """The number of heads may be one for all layers, or a list with 0 for layers that have no cache. Raises KeyError, ValueError, TypeError."""
    architecture = str(metadata["general.architecture"])
    prefix = f"{architecture}."
    values = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    layers = int(values["block_count"])
    heads = _per_layer(values.get("attention.head_count_kv", values["attention.head_count"]), layers)
    most = max(_per_layer(values["attention.head_count"], layers), default=0)
    head_dim = int(values["embedding_length"]) // most if most else 0
    one_head = sum(
        int(values.get(f"attention.{part}_length", head_dim)) * _VALUE_BYTES for part in ("key", "value")
    )
    sliding = _sliding_layers(architecture, values, layers)
    return Need(
        weight_bytes,
        sum(heads) * one_head,
        values.get("context_length"),
        sum(count for count, slides in zip(heads, sliding, strict=True) if slides) * one_head,
        int(values.get("attention.sliding_window") or 0),
    )


def _per_layer(value: Any, layers: int) -> list[int]:
    many = [int(one) for one in value] if hasattr(value, "__len__") else [int(value)] * layers
    if len(many) != layers:
        raise ValueError(f"{len(many)} values for {layers} layers")
    return many


def _sliding_layers(architecture: str, values: Mapping[str, Any], layers: int) -> list[bool]:
    """Which layers see a window only."""
    pattern = values.get("attention.sliding_window_pattern", _FULL_EVERY.get(architecture))
    if not values.get("attention.sliding_window") or pattern is None:
        return [False] * layers
    if hasattr(pattern, "__len__"):
        return [bool(one) for one in _per_layer(pattern, layers)]
    return [(layer + 1) % int(pattern) != 0 for layer in range(layers)]


def _of_folder(path: Path) -> Need | None:
    """A checkpoint as Hugging Face publishes it: the sizes of its weight files, and the shape in config.json."""
    files = [*path.glob("*.safetensors")] or [*path.glob("*.bin")]
    if not files:
        return None
    config: dict[str, Any] = json.loads((path / "config.json").read_text(encoding="utf-8"))
    config = {**config, **config.get("text_config", {})}
    heads = int(config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
    one_layer = int(config.get("num_key_value_heads") or heads) * 2 * head_dim * _VALUE_BYTES
    attending = _attending_layers(config)
    return Need(
        sum(file.stat().st_size for file in files),
        len(attending) * one_layer,
        config.get("max_position_embeddings"),
        attending.count("sliding_attention") * one_layer,
        int(config.get("sliding_window") or 0),
    )


def _attending_layers(config: Mapping[str, Any]) -> list[str]:
    """The kinds of the layers that keep keys and values. Hybrids name every layer's kind, in one of three ways."""
    if pattern := config.get("hybrid_override_pattern"):  # "M" a state, "E" and "-" no mixer, "*" attention
        return ["full_attention"] * str(pattern).count("*")
    kinds = config.get("layer_types") or config.get("layers_block_type")
    if not kinds:
        return ["full_attention"] * int(config["num_hidden_layers"])
    return [kind for kind in kinds if "attention" in kind and "linear" not in kind]
