"""Feeding a splitter in all sorts of pieces, and what came of it."""

from __future__ import annotations

from edgewise.chat.reasoning import ReasoningSplitter


def split(splitter: ReasoningSplitter, pieces: list[str]) -> tuple[str, str]:
    """(reasoning, content) of an answer that comes in `pieces`."""
    found = {"reasoning": "", "content": ""}
    for piece in pieces:
        for kind, text in splitter.push(piece):
            assert text
            found[kind] += text
    for kind, text in splitter.finish():
        found[kind] += text
    return found["reasoning"], found["content"]
