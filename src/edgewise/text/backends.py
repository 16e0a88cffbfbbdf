"""Builds the `tokenizers` pipeline that turns plain text (no control tokens in it) into ids.

Control tokens stay in the model's vocabulary, so that a saved tokenizer.json numbers them as the file did, but no merge makes one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from edgewise.text.pretokenizers import PreTokenizer, pre_tokenizer
from edgewise.text.sentencepiece import derive_merges, split_pattern
from edgewise.text.vocabulary import BYTE, CONTROL, UNKNOWN, USER_DEFINED, Vocabulary


@functools.cache
def byte_alphabet() -> dict[str, int]:
    """The printable characters byte-level BPE writes bytes with (GPT-2's table): character -> byte."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    rest = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(rest)}


def byte_level_backend(vocabulary: Vocabulary, types: Sequence[int]) -> Backend:
    """Byte-level BPE ("gpt2"). `types` are the token types after corrections. Raises TokenizerError for an unknown kind."""
    kind = pre_tokenizer(vocabulary.pre)
    vocab = {text: i for i, text in enumerate(vocabulary.tokens)}
    apart = {
        text for text, type_ in zip(vocabulary.tokens, types, strict=True) if type_ in (CONTROL, UNKNOWN)
    }
    pairs = (_pair(merge) for merge in vocabulary.merges)
    merges = [(a, b) for a, b in pairs if a in vocab and b in vocab and a + b in vocab and a + b not in apart]
    backend = Backend(models.BPE(vocab=vocab, merges=merges, ignore_merges=kind.whole_words))
    backend.pre_tokenizer = _word_cutter(kind)
    backend.decoder = decoders.ByteLevel()
    if kind.whole_words and (words := [text for text in apart if vocab[text] in backend.encode(text).ids]):
        # A control token that is one word would be taken whole from plain text.
        rest = {text: i for text, i in vocab.items() if text not in words}
        backend.model = models.BPE(vocab=rest, merges=merges, ignore_merges=True)
    return backend


def _pair(merge: str) -> tuple[str, str]:
    """The two sides; the first may itself start with a space, the byte alphabet has none elsewhere."""
    at = merge.index(" ", 1)
    return merge[:at], merge[at + 1 :]


def _word_cutter(kind: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in kind.patterns]
    return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def sentencepiece_backend(vocabulary: Vocabulary, types: Sequence[int], *, add_space_prefix: bool) -> Backend:
    """SentencePiece BPE ("llama"): spaces escaped as "▁", unknown characters as byte tokens."""
    tokens = vocabulary.tokens
    # User-defined tokens are found before merging, so none of their texts is left for a merge to make.
    mergeable = [i for i, type_ in enumerate(types) if type_ not in (CONTROL, UNKNOWN, BYTE, USER_DEFINED)]
    merges = derive_merges(tokens, vocabulary.scores, mergeable)
    vocab = {text: i for i, text in enumerate(tokens)}
    backend = Backend(models.BPE(vocab=vocab, merges=merges, byte_fallback=True))
    prefix = [normalizers.Prepend("▁")] if add_space_prefix else []
    backend.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(split_pattern(tokens, mergeable)), "isolated")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return backend
