"""Vocabularies for the tests here: small ones made on the spot, and the real ones of the data folder."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from edgewise.checkpoints import open_checkpoint
from edgewise.text import Tokenizer
from edgewise.text.backends import byte_alphabet
from tests.support.shared import shared_data

BYTE_LEVEL = ("deepseek-llm", "falcon", "gpt-2", "llama-bpe", "qwen2", "starcoder")
SENTENCEPIECE = ("llama-spm", "phi-3")
MARKER = "\n__ggml_vocab_test__\n"


def real_metadata(name: str) -> dict[str, Any]:
    path = shared_data(f"tokenizers/ggml-vocab-{name}.gguf")
    with contextlib.closing(open_checkpoint(path)) as checkpoint:
        return {
            key: checkpoint.metadata[key] for key in checkpoint.metadata if key.startswith(("tok", "general"))
        }


@functools.cache
def real_tokenizer(name: str) -> Tokenizer:
    return Tokenizer.from_gguf(real_metadata(name))


@functools.cache
def byte_alphabet_of(name: str) -> frozenset[int]:
    """The bytes a byte-level vocabulary has tokens for."""
    tokens = set(real_metadata(name)["tokenizer.ggml.tokens"])
    return frozenset(byte for char, byte in byte_alphabet().items() if char in tokens)


def real_cases(name: str) -> list[tuple[str, list[int]]]:
    """Texts and the ids llama.cpp gives them, without the beginning token; the last text is empty."""
    texts = shared_data(f"tokenizers/ggml-vocab-{name}.gguf.inp").read_bytes().decode().split(MARKER)
    lines = shared_data(f"tokenizers/ggml-vocab-{name}.gguf.out").read_text().split("\n")
    assert len(texts) == len(lines)
    return [(text, [int(i) for i in line.split()]) for text, line in zip(texts, lines, strict=True)]


def byte_level_metadata(**changes: Any) -> dict[str, Any]:
    """256 bytes, a few merges, control and user-defined tokens. `changes` replace or (None) remove keys."""
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "a a", "aa aa", "< |", "i m"]
    tokens = [*byte_alphabet(), *(merge.replace(" ", "") for merge in merges)]
    controls = ["<s>", "<|im_start|>", "<|im_end|>", "<|x|><|y|>", "<|y|>"]
    users = ["<tool>", "<tool>>"]
    metadata: dict[str, Any] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [*tokens, *controls, *users],
        "token_type": [1] * len(tokens) + [3] * len(controls) + [4] * len(users),
        "merges": merges,
        "bos_token_id": len(tokens),
        "eos_token_id": len(tokens) + 2,
    }
    return _with_prefix(metadata | changes)


def sentencepiece_metadata(**changes: Any) -> dict[str, Any]:
    words = ["▁", "a", "b", "c", "▁a", "ab", "▁ab", "bc", "abc", "aa", "aaa", "aaaa"]
    controls, byte_tokens = ["<unk>", "<s>", "</s>"], [f"<0x{b:02X}>" for b in range(256)]
    tokens = [*controls, *byte_tokens, *words]
    metadata: dict[str, Any] = {
        "model": "llama",
        "tokens": tokens,
        "token_type": [2, 3, 3] + [6] * 256 + [1] * len(words),
        "scores": [0.0] * 259 + [-float(i) for i in range(len(words))],
    }
    return _with_prefix(metadata | changes)


def _with_prefix(metadata: dict[str, Any]) -> dict[str, Any]:
    return {f"tokenizer.ggml.{key}": value for key, value in metadata.items() if value is not None}
