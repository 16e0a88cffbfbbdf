"""The vocabulary a GGUF file declares, checked: every later step may trust lengths, ranges and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgewise.core.errors import TokenizerError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Values of `tokenizer.ggml.token_type` (GGUF specification)."""

PREFIX = "tokenizer.ggml."
MAX_TOKENS = 4_000_000
MAX_MERGES = 16_000_000
MAX_TOKEN_CHARS = 4096


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a GGUF file says of its tokenizer. Lists are indexed by token id."""

    model: str  # "gpt2": byte-level BPE; "llama": SentencePiece BPE
    pre: str
    tokens: list[str]
    types: list[int]
    scores: list[float]  # empty when the file has none
    merges: list[str]
    ids: dict[str, int]  # "bos", "eos", "eot", "fim_pre", ... as the file names them
    flags: dict[str, bool]  # "add_bos_token", "add_space_prefix", ...
    model_name: str = ""


_ID_KEYS = {
    **{
        f"{name}_token_id": name
        for name in (
            "bos",
            "eos",
            "eot",
            "eom",
            "fim_pre",
            "fim_suf",
            "fim_mid",
            "fim_pad",
            "fim_rep",
            "fim_sep",
        )
    },
    "prefix_token_id": "fim_pre",  # the older spellings
    "suffix_token_id": "fim_suf",
    "middle_token_id": "fim_mid",
}
_FLAG_KEYS = ("add_bos_token", "add_eos_token", "add_space_prefix")


def read_vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """Read and check the tokenizer keys of GGUF `metadata` (strings as str, arrays as sequences).

    Raises TokenizerError naming the key for missing, mistyped, inconsistent or absurdly large values.
    """
    model = _string(metadata, PREFIX + "model")
    if model not in ("gpt2", "llama"):
        raise TokenizerError(f"{PREFIX}model: tokenizers of kind {model!r} are not supported")
    tokens = _tokens(metadata)
    types = _array(metadata, PREFIX + "token_type", len(tokens), int)
    scores = _array(metadata, PREFIX + "scores", len(tokens), float, required=model == "llama")
    merges = _merges(metadata) if model == "gpt2" else []
    return Vocabulary(
        model=model,
        pre=_string(metadata, PREFIX + "pre", default="default"),
        tokens=tokens,
        types=types,
        scores=scores,
        merges=merges,
        ids=_special_ids(metadata, len(tokens), {"bos": 1, "eos": 2} if model == "llama" else {}),
        flags={name: bool(metadata[PREFIX + name]) for name in _FLAG_KEYS if PREFIX + name in metadata},
        model_name=str(metadata.get("general.name", "")),
    )


def _string(metadata: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = metadata.get(key, default)
    if value is None:
        raise TokenizerError(f"{key} is missing: the file has no usable vocabulary")
    if not isinstance(value, str):
        raise TokenizerError(f"{key} must be a string, not {type(value).__name__}")
    return value


def _sequence(metadata: Mapping[str, Any], key: str, limit: int) -> Sequence[Any]:
    value = metadata.get(key)
    if value is None:
        raise TokenizerError(f"{key} is missing: the file has no usable vocabulary")
    if isinstance(value, str | bytes) or not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
        raise TokenizerError(f"{key} must be an array, not {type(value).__name__}")
    if not 0 < len(value) <= limit:
        raise TokenizerError(f"{key} has {len(value)} entries; between 1 and {limit} make sense")
    return value  # type: ignore[no-any-return]


def _strings(metadata: Mapping[str, Any], key: str, limit: int) -> list[str]:
    values = list(_sequence(metadata, key, limit))
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise TokenizerError(f"{key}[{i}] must be a string, not {type(value).__name__}")
        if len(value) > MAX_TOKEN_CHARS:
            raise TokenizerError(
                f"{key}[{i}] is {len(value)} characters long; at most {MAX_TOKEN_CHARS} make sense"
            )
    return values


def _tokens(metadata: Mapping[str, Any]) -> list[str]:
    key = PREFIX + "tokens"
    tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(_strings(metadata, key, MAX_TOKENS))]
    if len(set(tokens)) != len(tokens):
        seen: set[str] = set()
        twice = next(text for text in tokens if text in seen or seen.add(text))  # type: ignore[func-returns-value]
        raise TokenizerError(f"{key}: the token {twice!r} appears twice")
    return tokens


def _array(
    metadata: Mapping[str, Any], key: str, length: int, kind: type[Any], *, required: bool = False
) -> list[Any]:
    """Numbers for each token; absent and not required: all normal (types) or an empty list (scores)."""
    if key not in metadata and not required:
        return [NORMAL] * length if kind is int else []
    values = _sequence(metadata, key, MAX_TOKENS)
    if len(values) != length:
        raise TokenizerError(f"{key} has {len(values)} entries for {length} tokens")
    plain = values.tolist() if hasattr(values, "tolist") else list(values)
    if not all(isinstance(v, int | float) and v == v for v in plain):
        raise TokenizerError(f"{key} must hold numbers")
    return plain if kind is float else [int(v) for v in plain]


def _merges(metadata: Mapping[str, Any]) -> list[str]:
    key = PREFIX + "merges"
    merges = _strings(metadata, key, MAX_MERGES)
    for i, merge in enumerate(merges):
        if merge.find(" ", 1) < 0:
            raise TokenizerError(f"{key}[{i}] is not a pair: {merge!r}")
    return merges


def _special_ids(metadata: Mapping[str, Any], size: int, defaults: dict[str, int]) -> dict[str, int]:
    ids = {name: value for name, value in defaults.items() if value < size}
    for key, name in _ID_KEYS.items():
        value = metadata.get(PREFIX + key)
        if value is None:
            continue
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TokenizerError(f"{PREFIX}{key} must be a token id, not {value!r}")
        value = int(value)
        if value in (-1, 0xFFFFFFFF):  # the spellings of "none"
            ids.pop(name, None)
        elif not 0 <= value < size:
            raise TokenizerError(f"{PREFIX}{key} is {value}, but the vocabulary has {size} tokens")
        else:
            ids[name] = value
    return ids
