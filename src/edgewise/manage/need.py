"""How much memory a model will take at a context length and a number of users, told from what its files say of themselves.

Keys and values are counted at 16 bits for every layer that has heads for them, at full length: an upper bound where layers attend to a
window only. Sources: GGUF's metadata keys, and config.json of published checkpoints.
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
_VALUE_BYTES = 2


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes. `window`: tokens the model was made for, None where nothing says."""

    weight_bytes: int
    kv_bytes_per_token: int
    window: int | None = None

    def kv_bytes(self, context: int, users: int) -> int:
        return self.kv_bytes_per_token * context * users

    def total_bytes(self, context: int, users: int) -> int:
        return self.weight_bytes + self.kv_bytes(context, users) + WORKING_BYTES


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
        size = sum(file.stat().st_size for file in checkpoint.files)
        metadata = checkpoint.metadata
        architecture = metadata["general.architecture"]
        values = {
            key.removeprefix(f"{architecture}."): value
            for key, value in metadata.items()
            if key.startswith(f"{architecture}.")
        }
        return Need(size, gguf_kv_bytes(values), values.get("context_length"))
    finally:
        checkpoint.close()


def gguf_kv_bytes(values: Mapping[str, Any]) -> int:
    """Of one token, all layers. The number of heads may be one for all layers, or a list with 0 for layers that have no cache."""
    layers = int(values["block_count"])
    heads = values.get("attention.head_count_kv", values["attention.head_count"])
    per_layer = [int(one) for one in heads] if hasattr(heads, "__len__") else [int(heads)] * layers
    query_heads = values["attention.head_count"]
    most = max(int(one) for one in query_heads) if hasattr(query_heads, "__len__") else int(query_heads)
    head_dim = int(values["embedding_length"]) // most if most else 0
    key = int(values.get("attention.key_length", head_dim))
    value = int(values.get("attention.value_length", head_dim))
    return sum(per_layer) * (key + value) * _VALUE_BYTES


def _of_folder(path: Path) -> Need | None:
    """A checkpoint as Hugging Face publishes it: the sizes of its weight files, and the shape in config.json."""
    files = [*path.glob("*.safetensors")] or [*path.glob("*.bin")]
    if not files:
        return None
    config: dict[str, Any] = json.loads((path / "config.json").read_text(encoding="utf-8"))
    config = {**config, **config.get("text_config", {})}
    heads = int(config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
    kinds = config.get("layer_types") or ()
    layers = (
        sum("attention" in kind and "linear" not in kind for kind in kinds) or config["num_hidden_layers"]
    )
    per_token = int(layers) * int(config.get("num_key_value_heads") or heads) * 2 * head_dim * _VALUE_BYTES
    return Need(sum(file.stat().st_size for file in files), per_token, config.get("max_position_embeddings"))
