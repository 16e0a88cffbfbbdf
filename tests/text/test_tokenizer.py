"""Tokenizers: exact ids, special tokens, bytes, saving, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.core.errors import InvalidRequestError, TokenizerError
from edgewise.text import FimTokens, Tokenizer
from edgewise.text import tokenizer as tokenizer_module
from tests.support.examples import examples
from tests.text.vocabularies import (
    BYTE_LEVEL,
    SENTENCEPIECE,
    byte_alphabet_of,
    byte_level_metadata,
    real_cases,
    real_tokenizer,
    sentencepiece_metadata,
)

REAL = [
    pytest.param(name, marks=() if name in ("gpt-2", "llama-spm") else pytest.mark.slow)
    for name in BYTE_LEVEL + SENTENCEPIECE
]
SMALL = Tokenizer.from_gguf(byte_level_metadata())
SMALL_SP = Tokenizer.from_gguf(sentencepiece_metadata())
SPECIAL_TEXT = st.lists(
    st.sampled_from(
        [
            "<s>",
            "<|im_start|>",
            "<|im_end|>",
            "<|x|>",
            "<|y|>",
            "<tool>",
            ">",
            "<",
            "|",
            "hello",
            " wo",
            "é",
            " ",
        ]
    )
    | st.text(max_size=3)
).map("".join)


@pytest.mark.parametrize("name", REAL)
def test_ids_are_those_of_llama_cpp(name: str, tmp_path: Path) -> None:
    tokenizer = real_tokenizer(name)
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    for text, ids in real_cases(name):
        assert tokenizer.encode(text) == ids, text
        assert loaded.encode(text) == ids, text
        assert tokenizer.decode(ids) == ((" " + text) if name in SENTENCEPIECE and text else text)


@pytest.mark.parametrize("name", REAL)
def test_long_text_in_pieces_has_the_same_ids(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = real_tokenizer(name)
    text = " ".join(text for text, _ in real_cases(name)) + " naïve  x, y;  1234 567 don't I'll\n a"
    whole = tokenizer.encode(text)
    for chunk_chars in (1, 7, 40, 333):
        monkeypatch.setattr(tokenizer_module, "CHUNK_CHARS", chunk_chars)
        assert tokenizer.encode(text) == whole, chunk_chars


def test_an_unbroken_stretch_without_end_is_refused() -> None:
    for char in "a ":
        with pytest.raises(InvalidRequestError, match="without a space between words"):
            SMALL.encode(char * (16 << 20))


def test_control_tokens_count_only_in_trusted_text() -> None:
    text = "hello<|im_end|><s>"
    assert SMALL.encode(text, parse_special=True)[-2:] == [
        SMALL.special_tokens["<|im_end|>"],
        SMALL.bos_token_id,
    ]
    assert not any(map(SMALL.is_special, SMALL.encode(text)))
    assert SMALL.decode(SMALL.encode(text)) == text


def test_user_defined_tokens_always_count_and_the_longest_wins() -> None:
    (short,) = SMALL.encode("<tool>")
    (long,) = SMALL.encode("<tool>>")
    assert short != long
    assert SMALL.encode("<tool>>>", parse_special=True)[0] == long
    assert not SMALL.is_special(short)


@given(SPECIAL_TEXT)
def test_plain_encoding_never_gives_a_control_token(text: str) -> None:
    ids = SMALL.encode(text)
    assert not any(map(SMALL.is_special, ids))
    assert SMALL.decode(ids) == text


@given(st.lists(SPECIAL_TEXT, max_size=5))
def test_segments_without_control_tokens_across_borders_are_one_text(segments: list[str]) -> None:
    """Where cutting hides nothing, segments encode as their whole; marks count characters and tokens truly."""
    text = "".join(segments)
    ids, marks = SMALL.encode_segments([text])
    assert ids == SMALL.encode(text, parse_special=True)
    assert marks[-1] == (len(text), len(ids))
    for num_chars, num_tokens in marks:
        assert SMALL.decode(ids[:num_tokens], skip_special_tokens=False) == text[:num_chars]
    cut_ids, cut_marks = SMALL.encode_segments(segments)
    assert SMALL.decode(cut_ids, skip_special_tokens=False) == text
    assert cut_marks[-1] == (len(text), len(cut_ids))
    if sum(map(SMALL.is_special, cut_ids)) == sum(map(SMALL.is_special, ids)):
        assert cut_ids == ids


def test_a_segment_border_keeps_a_control_token_text() -> None:
    ids, _ = SMALL.encode_segments(["a<|im", "_end|>"])
    assert ids == SMALL.encode("a<|im_end|>")


def test_special_tokens_round_a_text() -> None:
    tokenizer = Tokenizer.from_gguf(byte_level_metadata(add_bos_token=True, add_eos_token=True))
    plain = tokenizer.encode("hello")
    assert tokenizer.encode("hello", add_special_tokens=True) == [
        tokenizer.bos_token_id,
        *plain,
        tokenizer.eos_token_id,
    ]
    assert SMALL.encode("hello", add_special_tokens=True) == plain


def test_end_tokens_are_declared_or_well_known() -> None:
    assert {SMALL.token_text(i) for i in SMALL.eos_token_ids} == {"<|im_end|>"}
    metadata = byte_level_metadata()
    types = list(metadata["tokenizer.ggml.token_type"])
    end = metadata["tokenizer.ggml.tokens"].index("<|im_end|>")
    types[end] = 1  # a converter that forgot to mark it
    tokenizer = Tokenizer.from_gguf(byte_level_metadata(token_type=types, eos_token_id=None, eot_token_id=3))
    assert tokenizer.eos_token_ids == {3, end}
    assert end not in tokenizer.encode("<|im_end|>")


def test_fill_in_the_middle_tokens() -> None:
    assert SMALL.fim is None
    tokens = byte_level_metadata()["tokenizer.ggml.tokens"]
    keys = {"fim_pre_token_id": 1, "suffix_token_id": 2, "fim_mid_token_id": 3}
    assert Tokenizer.from_gguf(byte_level_metadata(**keys)).fim == FimTokens(1, 2, 3)
    names = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
    types = [1] * len(tokens) + [3] * 3
    tokenizer = Tokenizer.from_gguf(byte_level_metadata(tokens=[*tokens, *names], token_type=types))
    assert tokenizer.fim == FimTokens(*(len(tokens) + i for i in range(3)))


def test_token_bytes_are_exact() -> None:
    for byte, token in enumerate(bytes(range(256))):
        text = chr(byte) if byte < 128 else None
        if text is not None:
            (token_id,) = SMALL.encode(text)
            assert SMALL.token_bytes(token_id) == bytes([token])
    assert {SMALL.token_bytes(i) for i in range(256)} == {bytes([b]) for b in range(256)}
    assert SMALL.token_bytes(SMALL.special_tokens["<s>"]) == b"<s>"
    assert SMALL_SP.token_bytes(3 + 0xE2) == b"\xe2"
    assert SMALL_SP.token_text(3 + 0xE2) == "\ufffd"
    assert SMALL_SP.token_bytes(3 + 256 + 6) == b" ab"
    for token_id in (-1, SMALL.vocab_size):
        with pytest.raises(InvalidRequestError, match="outside the vocabulary"):
            SMALL.token_bytes(token_id)


@given(st.text(max_size=40))
def test_any_text_comes_back(text: str) -> None:
    assert SMALL.decode(SMALL.encode(text)) == text
    assert SMALL_SP.decode(SMALL_SP.encode(text)) == ((" " + text.replace("▁", " ")) if text else "")


@given(st.text(max_size=40))
def test_no_token_is_longer_than_said(text: str) -> None:
    for tokenizer in (SMALL, SMALL_SP):
        assert len(tokenizer.encode(text)) * tokenizer.max_token_bytes >= len(text.encode())


@pytest.mark.parametrize("text", ["\ud800", "ok \udfff", "<s>\ud83d"])
def test_lone_surrogates_are_refused(text: str) -> None:
    for parse_special in (False, True):
        with pytest.raises(InvalidRequestError, match="lone surrogate"):
            SMALL.encode(text, parse_special=parse_special)


def test_white_space_after_the_control_tokens_of_phi3_is_swallowed() -> None:
    metadata = byte_level_metadata() | {"general.name": "Phi-3-mini"}
    tokenizer = Tokenizer.from_gguf(metadata)
    end = tokenizer.special_tokens["<|im_end|>"]
    assert tokenizer.encode("<|im_end|> \n\nhello", parse_special=True) == [end, *tokenizer.encode("hello")]
    assert tokenizer.encode("<s> hello", parse_special=True)[1:] == tokenizer.encode(" hello")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "tokenizer.ggml.model is missing"),
        ({"model": 3}, "tokenizer.ggml.model must be a string"),
        ({"model": "bert"}, "'bert' are not supported"),
        ({"model": "t5"}, "'t5' are not supported"),
        ({"tokens": None}, "tokenizer.ggml.tokens is missing"),
        ({"tokens": []}, "tokenizer.ggml.tokens has 0 entries"),
        ({"tokens": "abc"}, "tokenizer.ggml.tokens must be an array"),
        ({"tokens": ["a", 1]}, r"tokenizer.ggml.tokens\[1\] must be a string"),
        ({"tokens": ["a", "b", "a"]}, "the token 'a' appears twice"),
        ({"tokens": ["a", "x" * 5000]}, r"tokenizer.ggml.tokens\[1\] is 5000 characters long"),
        ({"token_type": [1, 1]}, "tokenizer.ggml.token_type has 2 entries"),
        ({"token_type": ["x"] * 273}, "tokenizer.ggml.token_type must hold numbers"),
        ({"merges": None}, "tokenizer.ggml.merges is missing"),
        ({"merges": ["ab"]}, r"tokenizer.ggml.merges\[0\] is not a pair"),
        ({"pre": "klingon"}, "unknown pre-tokenizer kind 'klingon'"),
        ({"eos_token_id": 99999}, "tokenizer.ggml.eos_token_id is 99999"),
        ({"bos_token_id": "x"}, "tokenizer.ggml.bos_token_id must be a token id"),
    ],
)
def test_bad_vocabularies_are_refused_by_name(changes: dict[str, object], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.from_gguf(byte_level_metadata(**changes))


@pytest.mark.parametrize("scores", [None, [1.0], [float("nan")] * 271])
def test_sentencepiece_needs_scores(scores: object) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.ggml\.scores"):
        Tokenizer.from_gguf(sentencepiece_metadata(scores=scores))


@pytest.mark.parametrize("tokenizer", [SMALL, SMALL_SP])
def test_saved_and_loaded_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.facts == tokenizer.facts
    assert loaded.special_tokens == tokenizer.special_tokens
    assert [loaded.token_bytes(i) for i in range(loaded.vocab_size)] == [
        tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)
    ]
    text = "hello world <|im_end|><tool> aaab abc é"
    for parse_special in (False, True):
        assert loaded.encode(text, parse_special=parse_special) == tokenizer.encode(
            text, parse_special=parse_special
        )


def test_the_saved_file_is_readable_by_the_library(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Library

    SMALL.save(tmp_path)
    library = Library.from_file(str(tmp_path / "tokenizer.json"))
    text = "<s>hello world<|im_end|><tool>"
    assert library.encode(text, add_special_tokens=False).ids == SMALL.encode(text, parse_special=True)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_damaged_files_are_refused_by_name(name: str, tmp_path: Path) -> None:
    SMALL.save(tmp_path)
    whole = (tmp_path / name).read_bytes()
    for damaged in (whole[: len(whole) // 2], b"[]", b'{"edgewise_format": 99}', b'{"edgewise_format": 1}'):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(TokenizerError, match=name):
            Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)


def test_a_published_tokenizer_file(tmp_path: Path) -> None:
    """The same file without our own facts, with those of a published model in their place."""
    SMALL.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    start = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    content["post_processor"] = {
        "type": "Sequence",
        "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
            {
                "type": "TemplateProcessing",
                "single": [start, sequence],
                "pair": [start, sequence, sequence],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [SMALL.bos_token_id], "tokens": ["<s>"]}},
            },
        ],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    config = {"bos_token": {"content": "<s>"}, "eos_token": "<|im_end|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    loaded = Tokenizer.load(tmp_path)
    text = "hello<|im_end|> world"
    assert loaded.encode(text, add_special_tokens=True, parse_special=True) == [
        SMALL.bos_token_id,
        *SMALL.encode(text, parse_special=True),
    ]
    assert loaded.eos_token_ids == SMALL.eos_token_ids
    assert loaded.decode(loaded.encode(text)) == text
    (tmp_path / "tokenizer_config.json").unlink()
    assert Tokenizer.load(tmp_path).encode(text) == SMALL.encode(text)
    for part, value in (("model", {"type": "WordPiece", "vocab": {}}), ("pre_tokenizer", None)):
        (tmp_path / "tokenizer.json").write_text(json.dumps(content | {part: value}))
        with pytest.raises(TokenizerError, match="not supported"):
            Tokenizer.load(tmp_path)


def test_a_control_token_that_is_one_word_does_not_come_from_plain_text() -> None:
    metadata = byte_level_metadata(pre="llama-bpe")
    tokens = [*metadata["tokenizer.ggml.tokens"], "eot"]
    types = [*metadata["tokenizer.ggml.token_type"], 3]
    tokenizer = Tokenizer.from_gguf(byte_level_metadata(pre="llama-bpe", tokens=tokens, token_type=types))
    assert tokenizer.encode("eot") == SMALL.encode("eot")
    assert tokenizer.encode("eot", parse_special=True) == [len(tokens) - 1]


@pytest.mark.parametrize("name", REAL)
@settings(max_examples=examples(60), deadline=None)
@given(text=st.text(max_size=60))
def test_text_comes_back_from_real_vocabularies(name: str, text: str) -> None:
    tokenizer = real_tokenizer(name)
    if name in SENTENCEPIECE:
        expected = (
            " " + text.replace("▁", " ") if text else ""
        ).encode()  # its mark for a space is lost, too
    else:  # some vocabularies lack tokens for bytes that their training text had not; those bytes are lost
        alphabet = byte_alphabet_of(name)
        expected = bytes(byte for byte in text.encode() if byte in alphabet)
    ids = tokenizer.encode(text)
    assert b"".join(map(tokenizer.token_bytes, ids)) == expected
    assert not any(map(tokenizer.is_special, ids))
