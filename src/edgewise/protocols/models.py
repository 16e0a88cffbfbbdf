"""GET /v1/models: the served model, with the window that clients plan by and what it can do.

One answer for the clients of all APIs: Anthropic's objects have other names for the same things, and both kinds of clients pass over what
they do not know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a served model can be asked for."""

    completion: bool = True
    chat: bool = True
    tools: bool = True
    reasoning: bool = False
    structured_output: bool = True
    fill_in_the_middle: bool = False
    embeddings: bool = False
    vision: bool = False
    audio: bool = False

    @property
    def input_modalities(self) -> list[str]:
        return ["text", *(["image"] if self.vision else []), *(["audio"] if self.audio else [])]

    @property
    def supported_parameters(self) -> list[str]:
        """The request fields beyond plain sampling, in the words of clients that ask a list before they send one."""
        names = [
            (self.tools, ("tools", "tool_choice", "parallel_tool_calls")),
            (self.structured_output, ("response_format", "structured_outputs")),
            (self.reasoning, ("reasoning", "reasoning_effort", "include_reasoning")),
        ]
        return [name for offered, group in names if offered for name in group]


def encode_model(
    name: str,
    *,
    root: str,
    created: int,
    max_model_len: int,
    max_input_len: int,
    vocab_size: int,
    capabilities: Capabilities,
) -> dict[str, Any]:
    """A model object. An alias differs from the model it names in `id` alone: `root` is the model's own name.

    `max_model_len` is vLLM's name of the window, `context_length` OpenRouter's and LM Studio's, `meta` is what llama-server's clients read.
    """
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "edgewise",
        "root": root,
        "parent": None,
        **anthropic_fields(name, created),
        "max_model_len": max_model_len,
        "max_input_len": max_input_len,
        "context_window": max_model_len,
        "context_length": max_model_len,
        "capabilities": dataclasses.asdict(capabilities),
        "input_modalities": capabilities.input_modalities,
        "output_modalities": ["text"],
        "supported_parameters": capabilities.supported_parameters,
        "meta": {"n_ctx": max_model_len, "n_vocab": vocab_size},
    }


def anthropic_fields(name: str, created: int) -> dict[str, Any]:
    """What an object of Anthropic's list has beside its id."""
    at = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "display_name": name, "created_at": at}


def encode_models(models: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The whole list, which is one page."""
    names = [model["id"] for model in models]
    page = {
        "has_more": False,
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
    }
    return {"object": "list", "data": list(models), **page}
