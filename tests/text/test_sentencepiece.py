"""The derived merge rules against SentencePiece's greedy search."""

from __future__ import annotations

import functools
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from edgewise.text.sentencepiece import derive_merges, split_pattern
from edgewise.text.vocabulary import NORMAL, Vocabulary, read_vocabulary
from tests.support.examples import examples
from tests.text.sentencepiece_reference import segment
from tests.text.vocabularies import real_metadata, real_tokenizer


@st.composite
def vocabularies(draw: st.DrawFn) -> dict[str, float]:
    """The letters a, b and the space mark, some longer tokens over them, and distinct scores."""
    longer = draw(st.sets(st.text("ab▁", min_size=2, max_size=6), max_size=14))
    tokens = sorted({"a", "b", "▁"} | longer)
    return dict(zip(tokens, map(float, draw(st.permutations(range(len(tokens))))), strict=True))


@settings(max_examples=examples(300), deadline=None)
@given(vocabularies(), st.lists(st.text("ab▁", max_size=30), min_size=1, max_size=6))
def test_merges_do_what_the_search_does(score: dict[str, float], texts: list[str]) -> None:
    tokens = list(score)
    merges = derive_merges(tokens, list(score.values()), range(len(tokens)))
    backend = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(tokens)}, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(split_pattern(tokens, range(len(tokens)))), "isolated")
    for text in texts:
        assert backend.encode(text).tokens == segment(text, score)


def test_runs_of_one_score_grow_from_the_left() -> None:
    runs = ["▁" * n for n in range(2, 17)]
    tokens = ["▁", "a", "▁a", *runs]
    scores = [-3.0, -2.0, -1.0, *([-1e9] * len(runs))]
    merges = derive_merges(tokens, scores, range(len(tokens)))
    backend = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(tokens)}, merges=merges))
    for num_spaces in range(1, 100):
        for text in ("▁" * num_spaces, "a" + "▁" * num_spaces + "a▁"):
            assert backend.encode(text).tokens == segment(text, dict(zip(tokens, scores, strict=True))), text


def test_other_ties_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        derive_merges(["a", "b", "ab", "ba"], [0.0, 0.0, -1.0, -1.0], range(4))
    assert "'ab' and 'ba' have the same score" in caplog.text or "'ba' and 'ab'" in caplog.text


@functools.cache
def llama_vocabulary() -> Vocabulary:
    return read_vocabulary(real_metadata("llama-spm"))


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_llama_ids_are_those_of_the_search(data: st.DataObject) -> None:
    vocabulary = llama_vocabulary()
    ids = {text: i for i, text in enumerate(vocabulary.tokens)}
    score = {text: vocabulary.scores[i] for text, i in ids.items() if vocabulary.types[i] == NORMAL}
    pieces = st.sampled_from(vocabulary.tokens[259:]) | st.text(" -=*\n\taé", max_size=40)
    text = "".join(data.draw(st.lists(pieces, min_size=1, max_size=8))).replace("▁", " ")
    expected: list[int] = []
    for part in segment("▁" + text.replace(" ", "▁"), score):
        expected += [ids[part]] if part in score else [ids[f"<0x{byte:02X}>"] for byte in part.encode()]
    assert real_tokenizer("llama-spm").encode(text) == (expected if text else [])
