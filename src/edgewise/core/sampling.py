"""Sampling parameters: how the next token is chosen and when to stop.

Field names and meanings are vLLM's; the defaults are those of the Python API (temperature 0.7, top_p 0.9, top_k 50,
max_tokens 2048). HTTP endpoints start from their own defaults (`protocols/`), then apply generation_config.json, then the request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edgewise.core.errors import InvalidRequestError

LogitsProcessor = Callable[[Sequence[int], npt.NDArray[np.float32]], object]
"""`f(ids, logits)`: the ids generated so far and the writable f32[V] logits of the next token; called once per token.

The return value is ignored; edit `logits` in place. An exception fails that request only.
"""

MAX_LOGPROBS = 128
MAX_ALTERNATIVES = 1 << 22  # log probabilities in one answer
MAX_N = 128
MAX_STOP_STRINGS = 64
MAX_STOP_CHARS = 4096
MAX_BAD_WORDS = 1024
MAX_BAD_WORD_CHARS = 4096
MAX_STOP_TOKEN_IDS = 4096
UNLIMITED = -1

_NUMBERS = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
_INTEGERS = ("top_k", "n", "min_tokens", "max_tokens", "seed", "logprobs", "prompt_logprobs")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request samples. Frozen; `dataclasses.replace` makes variants. Validated on construction.

    Raises InvalidRequestError naming the field for NaN, out-of-range or contradictory values.
    """

    temperature: float = 0.7  # 0: greedy
    top_p: float = 0.9  # (0, 1]
    top_k: int = 50  # 0 or -1: all
    min_p: float = 0.0  # [0, 1]
    max_tokens: int | None = 2048  # None: the room left in the window
    min_tokens: int = 0
    n: int = 1
    seed: int | None = None  # None: drawn once per request
    presence_penalty: float = 0.0  # [-2, 2]
    frequency_penalty: float = 0.0  # [-2, 2]
    repetition_penalty: float = 1.0  # [0.01, 100]; applies to prompt and output
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # clamped to [-100, 100]
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    logprobs: int | None = (
        None  # alternatives per generated token; 0: the chosen one only; -1: the whole vocabulary
    )
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    logits_processors: tuple[LogitsProcessor, ...] = ()
    enable_thinking: bool = False
    disable_spec_decode: bool = False

    def __post_init__(self) -> None:
        _normalise(self)
        _check_ranges(self)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    def with_changes(self, **changes: Any) -> SamplingParams:
        """A copy with some fields changed, validated again."""
        return replace(self, **changes)


def _fail(name: str, value: object, rule: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name} must be {rule}, got {value!r}", param=name)


def _normalise(p: SamplingParams) -> None:
    """Turn the convenient spellings (a single string, lists, arrays, NumPy numbers) into the stored ones."""
    for name in ("stop", "bad_words", "stop_token_ids", "logits_processors"):
        object.__setattr__(p, name, _as_tuple(name, getattr(p, name)))
    if p.allowed_token_ids is not None:
        object.__setattr__(p, "allowed_token_ids", _as_tuple("allowed_token_ids", p.allowed_token_ids))
    for name in (*_NUMBERS, *_INTEGERS):
        value = getattr(p, name)
        if isinstance(value, np.integer | np.floating):
            object.__setattr__(p, name, value.item())
    if p.top_k == -1:
        object.__setattr__(p, "top_k", 0)
    object.__setattr__(p, "logit_bias", _as_bias(p.logit_bias))


def _as_tuple(name: str, value: Any) -> tuple[Any, ...]:
    """A list of any kind as a tuple; a string or a callable is a list of one."""
    if value is None:
        return ()
    if isinstance(value, str) or callable(value):
        return (value,)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise _fail(name, value, "a list")
    return tuple(item.item() if isinstance(item, np.integer) else item for item in value)


def _as_bias(given: Any) -> dict[int, float]:
    bias: dict[int, float] = {}
    if not isinstance(given or {}, Mapping):
        raise _fail("logit_bias", given, "a map from token ids to numbers")
    for key, value in (given or {}).items():
        try:
            token, amount = int(key), float(value)
        except (TypeError, ValueError):
            raise _fail("logit_bias", {key: value}, "a map from token ids to numbers") from None
        if not math.isfinite(amount):
            raise _fail("logit_bias", {key: value}, "a map from token ids to finite numbers")
        bias[token] = min(100.0, max(-100.0, amount))
    return bias


def _check_number(name: str, value: object, low: float, high: float, *, low_open: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _fail(name, value, "a finite number")
    if value < low or value > high or (low_open and value == low):
        edge = "greater than" if low_open else "at least"
        upper = "" if high == math.inf else f" and at most {high:g}"
        raise _fail(name, value, f"{edge} {low:g}{upper}")


def _check_int(name: str, value: object, low: int, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _fail(name, value, "an integer")
    if value < low or (high is not None and value > high):
        raise _fail(name, value, f"at least {low}" + ("" if high is None else f" and at most {high}"))


def _check_texts(name: str, texts: tuple[object, ...], most: int, most_chars: int) -> None:
    if len(texts) > most:
        raise _fail(name, len(texts), f"at most {most} strings")
    for text in texts:
        if not isinstance(text, str) or not text:
            raise _fail(name, text, "non-empty strings")
        if len(text) > most_chars:
            raise InvalidRequestError(
                f"{name} must be strings of at most {most_chars} characters, got one of {len(text)}",
                param=name,
            )


def _check_ranges(p: SamplingParams) -> None:
    _check_number("temperature", p.temperature, 0.0, 100.0)
    _check_number("top_p", p.top_p, 0.0, 1.0, low_open=True)
    _check_number("min_p", p.min_p, 0.0, 1.0)
    _check_number("presence_penalty", p.presence_penalty, -2.0, 2.0)
    _check_number("frequency_penalty", p.frequency_penalty, -2.0, 2.0)
    _check_number("repetition_penalty", p.repetition_penalty, 0.01, 100.0)
    _check_int("top_k", p.top_k, 0)
    _check_int("n", p.n, 1, MAX_N)
    _check_int("min_tokens", p.min_tokens, 0)
    if p.max_tokens is not None:
        _check_int("max_tokens", p.max_tokens, 0)
        if p.min_tokens > p.max_tokens:
            raise _fail("min_tokens", p.min_tokens, f"at most max_tokens ({p.max_tokens})")
    if p.seed is not None:
        _check_int("seed", p.seed, -(2**63), 2**64 - 1)
    for name in ("logprobs", "prompt_logprobs"):
        if (value := getattr(p, name)) is not None:
            _check_int(name, value, UNLIMITED, MAX_LOGPROBS)
    _check_texts("stop", p.stop, MAX_STOP_STRINGS, MAX_STOP_CHARS)
    _check_texts("bad_words", p.bad_words, MAX_BAD_WORDS, MAX_BAD_WORD_CHARS)
    if len(p.stop_token_ids) > MAX_STOP_TOKEN_IDS:
        raise _fail("stop_token_ids", len(p.stop_token_ids), f"at most {MAX_STOP_TOKEN_IDS} ids")
    for name in ("stop_token_ids", "allowed_token_ids"):
        for token in getattr(p, name) or ():
            _check_int(name, token, 0)
    for token in p.logit_bias:
        _check_int("logit_bias", token, 0)
    if p.allowed_token_ids is not None and not p.allowed_token_ids:
        raise _fail("allowed_token_ids", (), "not empty")
    for processor in p.logits_processors:
        if not callable(processor):
            raise _fail("logits_processors", processor, "callables f(ids, logits)")
