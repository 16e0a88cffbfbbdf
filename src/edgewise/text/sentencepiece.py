"""SentencePiece BPE as merge rules: what its greedy search by score does, said in ranked pairs.

SentencePiece (and llama.cpp after it) joins, of all neighbouring symbols whose joint text is a token, the pair whose token has the best
score, leftmost first. The `tokenizers` library joins the pair with the lowest rank, leftmost first. So every way to
split a token into two tokens becomes a pair, ranked by the token's score. Two details make that exact:

- Tokens of equal score (runs of spaces in Llama's vocabulary) are joined leftmost first whatever they are, which for runs means
  that a run grows from its left end until it is as long as a token can be: longer results rank before shorter ones, and of
  the splits of one result the one with the longer left part first.
- Several splits of one token have one score as well; the same order decides, which is again the leftmost: for a text that
  repeats one unit, a shorter part on the left of a longer one appears only where a run starts, never inside.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


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
    return [(text[:-minus_cut], text[-minus_cut:]) for _, _, minus_cut, text in ranked]


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
