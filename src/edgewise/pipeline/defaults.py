"""Sampling defaults: what the request gave, then the model's generation_config.json, then the entrance's own.

An entrance is a way in: the Python API, or one HTTP format. Each has a `SamplingDefaults`.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgewise.core.errors import InvalidRequestError
from edgewise.core.sampling import SamplingParams

MAX_TOKENS_LIMIT = 131_072
ROOM_LEFT = -1  # how llama.cpp's clients ask for all the room left in the window

_FIELDS = frozenset(field.name for field in dataclasses.fields(SamplingParams))
_MODEL_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What one entrance samples with where neither the request nor the model says."""

    temperature: float = 0.7
    top_p: float = 0.9
    top_k: int = 50
    max_tokens: int | None = None  # None: the room left in the window


CHAT = SamplingDefaults()
MESSAGES = SamplingDefaults()
RESPONSES = SamplingDefaults()
COMPLETIONS = SamplingDefaults(max_tokens=16)
PYTHON = SamplingDefaults(max_tokens=2048)


def model_defaults(generation_config: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling fields of a generation_config.json; other keys there are no defaults of sampling."""
    found = {
        name: generation_config[name] for name in _MODEL_FIELDS if generation_config.get(name) is not None
    }
    if generation_config.get("max_new_tokens") is not None:
        found["max_tokens"] = generation_config["max_new_tokens"]
    return found


def sampling_params(
    given: Mapping[str, Any], *, generation_config: Mapping[str, Any], defaults: SamplingDefaults
) -> SamplingParams:
    """SamplingParams from the fields a request gave; a field that is None was not given.

    `max_completion_tokens` is the newer name of `max_tokens` and wins. Raises InvalidRequestError naming the field for an
    unknown name or a bad value.
    """
    fields = {name: value for name, value in given.items() if value is not None}
    if (newer := fields.pop("max_completion_tokens", None)) is not None:
        fields["max_tokens"] = newer
    for name in fields:
        if name not in _FIELDS:
            near = difflib.get_close_matches(name, _FIELDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else None
            raise InvalidRequestError(f"unknown sampling field {name!r}", param=name, hint=hint)
    merged = {**dataclasses.asdict(defaults), **model_defaults(generation_config), **fields}
    if merged["max_tokens"] == ROOM_LEFT:
        merged["max_tokens"] = None
    try:
        return SamplingParams(**merged)
    except TypeError as error:  # a number where a list belongs
        raise InvalidRequestError(f"a sampling field has the wrong type: {error}") from error


def fit_max_tokens(sampling: SamplingParams, *, prompt_len: int, max_model_len: int) -> SamplingParams:
    """Clamp `max_tokens` to the room the prompt leaves. Raises InvalidRequestError above max(131072, window)."""
    limit = max(MAX_TOKENS_LIMIT, max_model_len)
    wanted = sampling.max_tokens
    if wanted is not None and wanted > limit:
        raise InvalidRequestError(f"max_tokens must be at most {limit}, got {wanted}", param="max_tokens")
    room = max_model_len - prompt_len
    if wanted is not None and wanted <= room:
        return sampling
    if sampling.min_tokens > room:
        raise InvalidRequestError(
            f"min_tokens ({sampling.min_tokens}) does not fit: the prompt leaves room for {room} tokens",
            param="min_tokens",
        )
    return sampling.with_changes(max_tokens=room)
