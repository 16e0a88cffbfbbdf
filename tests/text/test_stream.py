"""Incremental text: whole characters, stop strings, and which token made which text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise.core.errors import InvalidRequestError
from edgewise.text import TextChunk, TextStream
from tests.support.byte_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()
IDS = st.lists(st.integers(0, TOKENIZER.vocab_size - 1), max_size=40) | st.text(max_size=15).map(
    lambda text: list(text.encode())
)


class WordTokenizer:
    """Ids are places in a list of words."""

    def __init__(self, *words: str | bytes) -> None:
        self._words = [word.encode() if isinstance(word, str) else word for word in words]

    def token_bytes(self, token_id: int) -> bytes:
        return self._words[token_id]

    def is_special(self, token_id: int) -> bool:
        return False


def run(stream: TextStream, ids: list[int], cuts: list[int]) -> list[TextChunk]:
    """Push the ids in groups that end at `cuts`, then flush."""
    places = sorted({min(cut, len(ids)) for cut in cuts} | {0, len(ids)})
    chunks = [stream.push(ids[a:b]) for a, b in itertools.pairwise(places)]
    return [*chunks, stream.flush()]


def stop_of(text: str, stops: list[str]) -> tuple[int, int, str] | None:
    """Start, end and string of the stop that completes first, of those the longest: by trying every place."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            stop = max(ended, key=len)
            return end - len(stop), end, stop
    return None


@given(IDS, st.lists(st.integers(0, 40)), st.booleans())
def test_chunks_joined_are_the_one_shot_decode(ids: list[int], cuts: list[int], skip: bool) -> None:
    chunks = run(TextStream(TOKENIZER, skip_special_tokens=skip), ids, cuts)
    assert "".join(chunk.text for chunk in chunks) == TOKENIZER.decode(ids, skip_special_tokens=skip)
    assert [i for chunk in chunks for i in chunk.token_ids] == ids


@given(
    st.lists(st.text("ab\u00e9", min_size=1, max_size=4), min_size=1, max_size=4),
    st.text("ab\u00e9", max_size=25),
    st.lists(st.integers(0, 50)),
    st.booleans(),
)
def test_stop_strings_end_the_text_for_any_chunking(
    stops: list[str], text: str, cuts: list[int], include: bool
) -> None:
    chunks = run(TextStream(TOKENIZER, stop=stops, include_stop=include), list(text.encode()), cuts)
    found = stop_of(text, stops)
    expected = text if found is None else text[: found[1] if include else found[0]]
    assert "".join(chunk.text for chunk in chunks) == expected
    assert [chunk.matched_stop for chunk in chunks if chunk.matched_stop] == ([found[2]] if found else [])


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("abx", min_size=1, max_size=4), max_size=12),
    st.lists(st.integers(0, 12)),
)
def test_tokens_come_with_the_text_that_completes_them(
    stops: list[str], words: list[str], cuts: list[int]
) -> None:
    tokenizer = WordTokenizer(*words)
    chunks = run(TextStream(tokenizer, stop=stops), list(range(len(words))), cuts)
    sent = "".join(chunk.text for chunk in chunks)
    covered = [i for chunk in chunks for i in chunk.token_ids]
    assert covered == list(range(len(covered)))
    offsets = [offset for chunk in chunks for offset in chunk.offsets]
    assert offsets == [sum(map(len, words[:i])) for i in covered]
    assert all(offset < len(sent) for offset in offsets)
    assert sum(len(words[i]) for i in covered) >= len(sent)
    done = 0
    for chunk in chunks:
        done += len(chunk.text)
        if chunk.token_ids and chunk.matched_stop is None:
            assert sum(map(len, words[: chunk.token_ids[-1] + 1])) <= done


def test_a_stop_string_across_tokens_leaks_nothing() -> None:
    stream = TextStream(WordTokenizer("ba", "na", "nas", "!"), stop=["anan"])
    assert stream.push([0]).text == "b"
    assert stream.push([1]).text == ""
    last = stream.push([2])
    assert (last.text, last.matched_stop) == ("", "anan")
    assert stream.push([3]) == stream.flush() == TextChunk()
    assert stream.matched_stop == "anan"


def test_a_text_that_only_begins_like_the_stop_is_sent_at_the_end() -> None:
    stream = TextStream(WordTokenizer("an", "a"), stop=["anan"])
    assert [stream.push([0]).text, stream.push([1]).text] == ["", ""]
    end = stream.flush()
    assert (end.text, end.token_ids, end.matched_stop) == ("ana", (0, 1), None)


def test_no_more_is_held_back_than_could_match() -> None:
    stream = TextStream(WordTokenizer("xxan", "ax"), stop=["anan", "nothing"])
    assert stream.push([0]).text == "xx"
    assert stream.push([1]).text == "anax"


def test_of_overlapping_stops_the_first_to_complete_wins() -> None:
    stream = TextStream(WordTokenizer("abcd"), stop=["abcd", "bc"])
    chunk = stream.push([0])
    assert (chunk.text, chunk.matched_stop) == ("a", "bc")
    stream = TextStream(WordTokenizer("abc"), stop=["bc", "abc"])
    chunk = stream.push([0])
    assert (chunk.text, chunk.matched_stop) == ("", "abc")


def test_incomplete_characters_wait_and_become_a_mark_only_when_certain() -> None:
    smile = "🙂".encode()
    stream = TextStream(WordTokenizer(smile[:2], smile[2:], b"A"))
    assert stream.push([0]) == TextChunk()
    whole = stream.push([1])
    assert (whole.text, whole.token_ids, whole.offsets) == ("🙂", (0, 1), (0, 0))
    assert stream.push([0]) == TextChunk()
    assert stream.push([2]).text == "\ufffdA"
    stream.push([0])
    assert stream.flush().text == "\ufffd"


def test_special_tokens_cover_no_text_but_are_counted() -> None:
    end = TOKENIZER.special_tokens["<|im_end|>"]
    chunk = TextStream(TOKENIZER).push([*b"hi", end])
    assert (chunk.text, chunk.token_ids) == ("hi", (*b"hi", end))
    assert TextStream(TOKENIZER, skip_special_tokens=False).push([end]).text == "<|im_end|>"


@pytest.mark.parametrize("stop", ["", "x" * 5000])
def test_useless_stop_strings_are_refused(stop: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        TextStream(TOKENIZER, stop=[stop])
    assert caught.value.param == "stop"


def test_held_back_text_costs_no_more_when_it_is_long() -> None:
    """A stop string of many equal characters, nearly matched again and again, is linear work."""
    stream = TextStream(WordTokenizer("a" * 4095 + "b"), stop=["a" * 4096])
    sent = sum(len(stream.push([0]).text) for _ in range(100))
    assert sent == 4096 * 100
