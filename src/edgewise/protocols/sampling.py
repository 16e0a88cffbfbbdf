"""The sampling fields the OpenAI endpoints share (OpenAI's own and vLLM's), read into SamplingParams field names."""

from __future__ import annotations

from typing import Any

from edgewise.core.sampling import SamplingParams
from edgewise.protocols.fields import Fields

_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)
_INTEGERS = ("top_k", "n", "min_tokens", "seed", "prompt_logprobs")
_BOOLEANS = (
    "include_stop_str_in_output",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "disable_spec_decode",
    "enable_thinking",
)
_TOKEN_IDS = ("stop_token_ids", "allowed_token_ids")

_NOT_YET = (
    "logprob_token_ids",
    "truncate_prompt_tokens",
    "prompt_embeds",
    "kv_transfer_params",
    "ec_transfer_params",
    "repetition_detection",
)
"""Fields that change the answer and that this version cannot honour: refused rather than dropped."""


def read_sampling(fields: Fields) -> dict[str, Any]:
    """The sampling fields that were given, checked. Raises InvalidRequestError with `param`."""
    given: dict[str, Any] = {}
    for name in _NUMBERS:
        given[name] = fields.number(name)
    for name in _INTEGERS:
        given[name] = fields.integer(name)
    for name in _BOOLEANS:
        given[name] = fields.boolean(name) if fields.get(name) is not None else None
    for name in _TOKEN_IDS:
        given[name] = fields.token_ids(name)
    given["stop"] = _read_stop(fields)
    given["bad_words"] = fields.strings("bad_words")
    given["logit_bias"] = _read_logit_bias(fields)
    return {name: value for name, value in given.items() if value is not None}


def _read_stop(fields: Fields) -> list[str] | None:
    stop = fields.get("stop")
    if isinstance(stop, str):
        return [stop]
    return fields.strings("stop")


def _read_logit_bias(fields: Fields) -> dict[int, float] | None:
    bias = fields.object("logit_bias")
    if bias is None:
        return None
    amounts: dict[int, float] = {}
    for key in bias.data:
        if not (key.isascii() and key.isdecimal()):
            raise bias.fail(key, "must be a token id")
        if (amount := bias.number(key)) is not None:
            amounts[int(key)] = amount
    return amounts


def read_max_tokens(fields: Fields, *names: str, low: int) -> int | None:
    """The first of `names` that is given wins; all are checked. -1, which llama.cpp clients send, means "not given"."""
    limits = [fields.integer(name) for name in names]
    for name, limit in zip(names, limits, strict=True):
        if limit is not None and limit != -1 and limit < low:
            raise fields.fail(name, f"must be at least {low}", limit)
    return next((limit for limit in limits if limit is not None and limit != -1), None)


def check_sampling(given: dict[str, Any]) -> None:
    """Range checks that need no defaults, before anything is queued or tokenised."""
    SamplingParams(**{"max_tokens": None, **given})


def refuse_unavailable(fields: Fields) -> None:
    """400 for fields that would change the answer and cannot be honoured yet."""
    for name in _NOT_YET:
        if fields.get(name) not in (None, "", [], {}):
            raise fields.fail(name, "is not available yet")
    for name in ("use_beam_search", "watermarking"):
        if fields.boolean(name):
            raise fields.fail(name, "is not available yet")
