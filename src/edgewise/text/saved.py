"""A tokenizer on disk: tokenizer.json as the `tokenizers` library writes it, and the facts it has no place for.

Reading goes round the library's own JSON reader, which takes two to three times as long for the large vocabularies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from tokenizers import AddedToken, models
from tokenizers import Tokenizer as Backend

from edgewise.core.errors import TokenizerError
from edgewise.text.facts import TokenizerFacts
from edgewise.text.published import published_facts
from edgewise.text.specials import FimTokens

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
FORMAT, VERSION = "edgewise_format", 1

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, slots=True)
class SavedTokenizer:
    """The parts of a tokenizer directory. `backend` lacks the added tokens; `tokens` is indexed by id."""

    backend: Backend
    tokens: list[str | None]
    added: dict[int, AddedToken]
    facts: TokenizerFacts


def write_saved(
    directory: Path, backend: Backend, added: Mapping[int, AddedToken], facts: TokenizerFacts
) -> None:
    """Write both files into an existing directory."""
    content = orjson.loads(backend.to_str())
    content["added_tokens"] = [
        {"id": i, "content": token.content, **{name: getattr(token, name) for name in _FLAGS}}
        for i, token in sorted(added.items())
    ]
    merges = content["model"]["merges"]
    if not any(" " in side for pair in merges for side in pair):
        content["model"]["merges"] = [
            " ".join(pair) for pair in merges
        ]  # the older spelling: half the time to read
    (directory / TOKENIZER_FILE).write_bytes(orjson.dumps(content))
    plain = dataclasses.asdict(facts) | {
        "eos_token_ids": sorted(facts.eos_token_ids),
        FORMAT: VERSION,
    }
    (directory / CONFIG_FILE).write_bytes(orjson.dumps(plain, option=orjson.OPT_INDENT_2))


def read_saved(path: Path) -> SavedTokenizer:
    """Read what `write_saved` wrote into a directory, or the tokenizer.json of a published model: its directory, or the file under
    whatever name.

    Raises TokenizerError naming the file that is missing, damaged or newer.
    """
    directory = path.parent if path.is_file() else path
    tokenizer_file = path if path.is_file() else directory / TOKENIZER_FILE
    content = _read_json(tokenizer_file)
    is_pair = tokenizer_file.name == TOKENIZER_FILE and (directory / CONFIG_FILE).exists()
    config = _read_json(directory / CONFIG_FILE) if is_pair else {}
    ours = FORMAT in config
    name = CONFIG_FILE if ours else tokenizer_file.name
    try:
        facts = _facts(config) if ours else published_facts(content, config)
        name = tokenizer_file.name
        with _collector_paused():
            return SavedTokenizer(*_split(content), facts)
    except TokenizerError:
        raise
    except Exception as error:  # the library raises bare Exception for a bad model
        raise TokenizerError(f"{directory / name} is damaged: {error!r}") from error


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Half a million live objects in a row make the garbage collector look at all of them again and again: a fifth of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = orjson.loads(path.read_bytes())
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise TokenizerError(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise TokenizerError(f"{path} is damaged: not a JSON object")
    return content


def _facts(config: dict[str, Any]) -> TokenizerFacts:
    if config.pop(FORMAT) != VERSION:
        raise ValueError("it was written by another version")
    fim = config.pop("fim")
    ends = frozenset(int(i) for i in config.pop("eos_token_ids"))
    return TokenizerFacts(**config, eos_token_ids=ends, fim=FimTokens(**fim) if fim else None)


def _split(content: dict[str, Any]) -> tuple[Backend, list[str | None], dict[int, AddedToken]]:
    """The pipeline without added tokens, every token's text, and the added tokens."""
    model = content["model"]
    if model.get("type") != "BPE":
        raise ValueError(f"its model is {model.get('type')!r}, not BPE")
    vocab: dict[str, int] = model["vocab"]
    added = content["added_tokens"]
    size = 1 + max([*vocab.values(), *(token["id"] for token in added)])
    if size > 2 * (len(vocab) + len(added)):
        raise ValueError(f"token ids reach {size - 1} in a vocabulary of {len(vocab)}")
    tokens: list[str | None] = [None] * size
    for text, i in (*vocab.items(), *((token["content"], token["id"]) for token in added)):
        tokens[i] = text
    merges = [
        tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ", 1)) for pair in model["merges"]
    ]
    options = (
        "unk_token",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "fuse_unk",
        "byte_fallback",
        "ignore_merges",
    )
    frame = content | {"added_tokens": [], "model": model | {"vocab": {}, "merges": []}}
    backend = Backend.from_str(orjson.dumps(frame).decode())
    backend.model = models.BPE(
        vocab=vocab, merges=merges, **{k: model[k] for k in options if model.get(k) is not None}
    )
    return backend, tokens, {token["id"]: _added_token(token) for token in added}


def _added_token(token: dict[str, Any]) -> AddedToken:
    flags = {name: bool(token[name]) for name in ("special", "normalized", "lstrip", "rstrip", "single_word")}
    return AddedToken(token["content"], **flags)
