"""Token ids to text as they come: whole characters only, nothing past a stop string, and which token made which text.

Whatever way the ids are cut into pushes, the chunks joined are the one-shot decode, up to the first stop string.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgewise.text.stops import StopAutomaton


class TokenDecoder(Protocol):
    """What a stream needs of a tokenizer."""

    def token_bytes(self, token_id: int) -> bytes: ...

    def is_special(self, token_id: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Text that is final, and the tokens it completes.

    A token belongs to the chunk that holds its last character, so tokens wait for held-back text; `offsets` are the places in
    the whole output where the text of each token starts. Tokens that lie past the sent text because of a stop string belong to
    no chunk.
    """

    text: str = ""
    token_ids: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    matched_stop: str | None = None


class TextStream:
    """The text of one generated sequence. Not for several threads at once.

    Held back are bytes that may still become a character, and the longest end of the text that may still become a stop string.
    The stop string that completes first wins, of those that complete together the longest; from its start on (its end with
    `include_stop`) nothing is sent, and `matched_stop` is set on that chunk. Later pushes give empty chunks.
    """

    def __init__(
        self,
        tokenizer: TokenDecoder,
        *,
        stop: Sequence[str] = (),
        include_stop: bool = False,
        skip_special_tokens: bool = True,
        keep: frozenset[int] = frozenset(),
    ) -> None:
        """`keep`: special tokens that are never skipped, the markers of a tool dialect say."""
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = StopAutomaton(stop) if stop else None
        self._state = 0
        self._include_stop = include_stop
        self._skip_special = skip_special_tokens
        self._keep = keep
        self._waiting: deque[tuple[int, int, int]] = (
            deque()
        )  # token id, start and end of its text in the output
        self._held = ""
        self._sent_len = 0
        self.matched_stop: str | None = None

    def push(self, token_ids: Iterable[int]) -> TextChunk:
        """Take more tokens; return the text that has become certain."""
        if self.matched_stop is not None:
            return TextChunk()
        fresh: list[str] = []
        decoded_len = self._sent_len + len(self._held)
        for token_id in token_ids:
            skipped = (
                self._skip_special and self._tokenizer.is_special(token_id) and token_id not in self._keep
            )
            text = "" if skipped else self._utf8.decode(self._tokenizer.token_bytes(token_id))
            start, decoded_len = decoded_len, decoded_len + len(text)
            unfinished = 0 if skipped else len(self._utf8.getstate()[0]) > 0
            self._waiting.append((token_id, start, decoded_len + unfinished))
            fresh.append(text)
        return self._take("".join(fresh))

    def flush(self) -> TextChunk:
        """The end: whatever was held back, an unfinished character as U+FFFD."""
        if self.matched_stop is not None:
            return TextChunk()
        chunk = self._take(self._utf8.decode(b"", final=True))
        if chunk.matched_stop is not None:
            return chunk
        rest = self._send(self._held, keep="")
        return TextChunk(
            chunk.text + rest.text, chunk.token_ids + rest.token_ids, chunk.offsets + rest.offsets
        )

    def _take(self, fresh: str) -> TextChunk:
        """Look for stop strings in new text, which follows what is held."""
        text = self._held + fresh
        if self._stops is None:
            return self._send(text, keep="")
        for position, char in enumerate(fresh, start=len(self._held) + 1):
            self._state = self._stops.step(self._state, char)
            if (match := self._stops.match[self._state]) is not None:
                self.matched_stop = match
                return self._end(text[: position if self._include_stop else position - len(match)])
        certain_len = len(text) - self._stops.depth[self._state]
        return self._send(text[:certain_len], keep=text[certain_len:])

    def _send(self, text: str, *, keep: str) -> TextChunk:
        self._held = keep
        self._sent_len += len(text)
        ids, offsets = [], []
        while self._waiting and self._waiting[0][2] <= self._sent_len:
            token_id, start, _ = self._waiting.popleft()
            ids.append(token_id)
            offsets.append(start)
        return TextChunk(text, tuple(ids), tuple(offsets))

    def _end(self, text: str) -> TextChunk:
        """Send the last text before the stop string, with every token that has a part in it."""
        self._held = ""
        self._sent_len += len(text)
        covered = [(token_id, start) for token_id, start, _ in self._waiting if start < self._sent_len]
        self._waiting.clear()
        return TextChunk(
            text, tuple(i for i, _ in covered), tuple(start for _, start in covered), self.matched_stop
        )
