"""Chosen special tokens stay visible while the others are skipped."""

from __future__ import annotations

import pytest

from edgewise.text import TextStream
from tests.support.byte_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer(control_tokens=["[TOOL_CALLS]", "<|im_end|>"])
CALLS, END = (TOKENIZER.special_tokens[text] for text in ("[TOOL_CALLS]", "<|im_end|>"))
IDS = [*b"a", CALLS, *b"put", END, *b"b"]


@pytest.mark.parametrize("step", [1, 3, len(IDS)])
@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (frozenset(), "aputb"),
        (frozenset({CALLS}), "a[TOOL_CALLS]putb"),
        (frozenset({CALLS, END}), "a[TOOL_CALLS]put<|im_end|>b"),
    ],
)
def test_kept_special_tokens_are_text(step: int, keep: frozenset[int], expected: str) -> None:
    stream = TextStream(TOKENIZER, keep=keep)
    chunks = [stream.push(IDS[i : i + step]) for i in range(0, len(IDS), step)]
    chunks.append(stream.flush())
    assert "".join(chunk.text for chunk in chunks) == expected
    assert [i for chunk in chunks for i in chunk.token_ids] == IDS


def test_a_stop_string_may_begin_in_a_kept_token() -> None:
    stream = TextStream(TOKENIZER, keep=frozenset({CALLS}), stop=["LS]pu"])
    assert stream.push(IDS).text == "a[TOOL_CAL"
    assert stream.matched_stop == "LS]pu"
    assert TextStream(TOKENIZER, stop=["LS]pu"]).push(IDS).matched_stop is None
