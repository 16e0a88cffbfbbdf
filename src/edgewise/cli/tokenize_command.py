"""`edgewise tokenize TOKENIZER CORPUS`: count a file's tokens and check that they decode to the same text."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgewise.core.errors import ConfigError, ModelNotFoundError

if TYPE_CHECKING:
    from edgewise.text import Tokenizer


def command(
    tokenizer: Annotated[Path, typer.Argument(help="tokenizer.json, a GGUF file or an engine directory")],
    corpus: Annotated[Path, typer.Argument(help="UTF-8 text file")],
    ids: Annotated[bool, typer.Option(help="print the token ids, one line")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    try:
        text = corpus.read_bytes().decode()  # line ends as they are: they are tokens too
    except OSError as error:
        raise ConfigError(f"cannot read {corpus}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{corpus} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    loaded = load(tokenizer)
    start = time.perf_counter()
    tokens = loaded.encode(text)
    seconds = time.perf_counter() - start
    same = loaded.decode(tokens, skip_special_tokens=False) == text
    if ids and not as_json:
        print(*tokens)
        return
    facts = {
        "tokens": len(tokens),
        "characters": len(text),
        "characters_per_token": round(len(text) / max(1, len(tokens)), 3),
        "vocab_size": loaded.vocab_size,
        "seconds": round(seconds, 4),
        "round_trip": same,
    }
    if as_json:
        print(json.dumps(facts | ({"ids": tokens} if ids else {})))
    else:
        for name, value in facts.items():
            print(f"{name.replace('_', ' ')}: {value}")
    if not same:
        raise typer.Exit(1)


def load(path: Path) -> Tokenizer:
    """The tokenizer of any of the three kinds of source."""
    from edgewise.checkpoints import open_checkpoint
    from edgewise.text import Tokenizer

    if not path.exists():
        raise ModelNotFoundError(f"no such file: {path}")
    if path.suffix == ".gguf":
        return Tokenizer.from_gguf(open_checkpoint(path).metadata)
    return Tokenizer.load(path)
