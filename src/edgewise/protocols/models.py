"""GET /v1/models: the served model, with the window that clients plan by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def encode_model(
    name: str, *, root: str, created: int, max_model_len: int, max_input_len: int, vocab_size: int
) -> dict[str, Any]:
    """A model object; `meta` holds what llama-server's clients read."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "edgewise",
        "root": root,
        "parent": None,
        "max_model_len": max_model_len,
        "max_input_len": max_input_len,
        "context_window": max_model_len,
        "meta": {"n_ctx": max_model_len, "n_vocab": vocab_size},
    }


def encode_models(models: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"object": "list", "data": list(models)}
