"""SentencePiece BPE as merge rules: what its greedy search by score does, said in ranked pairs.

SentencePiece (and llama.cpp after it) joins, of all neighbouring symbols whose joint text is a token, the pair whose token has the best
score, leftmost first. The `tokenizers` library joins the pair with the lowest rank, leftmost first. So every way to split a
token into two tokens becomes a pair, ranked by the token's score. Where several pairs have one score, leftmost first must follow
from their ranks:

- Splits of one token compete for the same characters only if the token repeats one unit (left part + right part + left part, each
  neighbouring two making the token). The shorter part comes first there only at the left end of a run, where it has already
  lost: the longer left part ranks first.
- Different tokens of one score: the runs of spaces in Llama's vocabulary. A run then grows from its left end until it is as long
  as a token can be, so longer results rank first. Any other tie is not exact and is logged.

Tokens with a character that is no token itself cannot be reached by pairs; published vocabularies have none.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Sequence

logger = logging.getLogger(__name__)


def derive_merges(
    tokens: Sequence[str], scores: Sequence[float], mergeable: Collection[int]
) -> list[tuple[str, str]]:
    """Ranked pairs for the tokens with the ids `mergeable`; no pair makes or takes any other token."""
    score = {tokens[i]: scores[i] for i in mergeable}
    ranked = [
        (-score[text], -len(text), -cut, text)
        for text in score
        for cut in range(1, len(text))
        if text[:cut] in score and text[cut:] in score
    ]
    ranked.sort()
    _warn_of_ties(ranked)
    return [(text[:-minus_cut], text[-minus_cut:]) for _, _, minus_cut, text in ranked]


def _warn_of_ties(ranked: Sequence[tuple[float, int, int, str]]) -> None:
    for (cost, _, _, text), (next_cost, _, _, next_text) in itertools.pairwise(ranked):
        if cost == next_cost and text != next_text and len(set(text + next_text)) > 1:
            logger.warning(
                "tokenizer.ggml.scores: %r and %r have the same score; texts with both may be cut another way than elsewhere",
                text,
                next_text,
            )
            return


def split_pattern(tokens: Sequence[str], mergeable: Collection[int]) -> str:
    """A pattern whose matches may be encoded apart: it cuts before a run of escaped spaces ("▁") where no token reaches across.

    Without it one text is one word of the merge loop, which is slow and caches nothing.
    """
    crossing: set[str] = set()
    for i in mergeable:
        text = tokens[i]
        at = text.find("▁", 1)
        while at > 0:
            if text[at - 1] != "▁":
                crossing.add(text[at - 1])
            at = text.find("▁", at + 1)
    inner = r"[^▁]"
    if crossing:
        chars = "".join(f"\\x{{{ord(c):x}}}" for c in sorted(crossing))
        inner = rf"(?:[^▁]|(?<=[{chars}])▁+)"
    return rf"▁*{inner}+|▁+"
