"""What a GGUF file says about text: generation defaults, under the names of generation_config.json, and its tokenizer's kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

SAMPLING_KEYS = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}
TOKEN_KEYS = {
    "tokenizer.ggml.bos_token_id": "bos_token_id",
    "tokenizer.ggml.padding_token_id": "pad_token_id",
}


def generation_config(metadata: Mapping[str, Any], eos_token_ids: frozenset[int]) -> dict[str, Any]:
    """What the file says about sampling, and the ids that end a generation, ascending. Absent keys stay absent."""
    config: dict[str, Any] = {"eos_token_id": sorted(eos_token_ids)}
    for key, name in TOKEN_KEYS.items():
        if isinstance(metadata.get(key), int):
            config[name] = metadata[key]
    for key, name in SAMPLING_KEYS.items():
        value = metadata.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            config[name] = value
    return config


def tokenizer_kind(metadata: Mapping[str, Any]) -> str:
    """Kind, pre-tokenizer and size of the vocabulary, in words."""
    kind = metadata.get("tokenizer.ggml.model")
    if kind is None:
        return "none"
    tokens = metadata.get("tokenizer.ggml.tokens")
    pre = metadata.get("tokenizer.ggml.pre")
    return f"{kind}{f' ({pre})' if pre else ''}, {len(tokens) if isinstance(tokens, list) else 0} tokens"
