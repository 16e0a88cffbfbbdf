"""SentencePiece's greedy search as llama.cpp runs it, in plain Python: the oracle for the derived merge rules."""

from __future__ import annotations

import heapq
from collections.abc import Mapping


def segment(text: str, score: Mapping[str, float]) -> list[str]:
    """Join neighbours whose joint text is a token, best score first, then leftmost, until nothing can be joined."""
    symbols = list(text)
    after = [*range(1, len(symbols)), -1]
    before = list(range(-1, len(symbols) - 1))
    queue: list[tuple[float, int, int, int]] = []

    def consider(left: int, right: int) -> None:
        if left >= 0 and right >= 0 and (joined := symbols[left] + symbols[right]) in score:
            heapq.heappush(queue, (-score[joined], left, right, len(joined)))

    for i in range(len(symbols) - 1):
        consider(i, i + 1)
    while queue:
        _, left, right, length = heapq.heappop(queue)
        if not (symbols[left] and symbols[right]) or len(symbols[left]) + len(symbols[right]) != length:
            continue
        symbols[left] += symbols[right]
        symbols[right] = ""
        after[left] = after[right]
        if after[right] >= 0:
            before[after[right]] = left
        consider(before[left], left)
        consider(left, after[left])
    return [symbol for symbol in symbols if symbol]
