"""Log probabilities in the three shapes OpenAI and vLLM clients read: chat, legacy completions, prompt.

An answer may hold a million alternatives. What is written of one token is JSON at once, so that no single call that encodes or
frees the whole holds the other threads up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from edgewise.core.requests import TokenLogprob
from edgewise.protocols.reply import TokenNames

_LOWEST = -9999.0
"""JSON has no -Infinity; OpenAI's own value for a token that cannot come."""


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else _LOWEST


def _written(value: dict[str, Any]) -> orjson.Fragment:
    return orjson.Fragment(orjson.dumps(value))


class LogprobWriter:
    """Names tokens for one reply. `tokens_as_ids` writes "token_id:N" instead of text, which is never ambiguous."""

    __slots__ = ("_as_ids", "_names")

    def __init__(self, names: TokenNames, *, tokens_as_ids: bool = False) -> None:
        self._names = names
        self._as_ids = tokens_as_ids

    def token(self, token_id: int) -> str:
        return f"token_id:{token_id}" if self._as_ids else self._names.token_text(token_id)

    def chat(self, entries: Iterable[TokenLogprob]) -> dict[str, Any]:
        """`choices[].logprobs` of chat completions."""
        content = []
        for entry in entries:
            top = [self._chat_token(token_id, logprob) for token_id, logprob in entry.top]
            content.append(_written({**self._chat_token(entry.token_id, entry.logprob), "top_logprobs": top}))
        return {"content": content, "refusal": None}

    def _chat_token(self, token_id: int, logprob: float) -> dict[str, Any]:
        exact = list(self._names.token_bytes(token_id))
        return {"token": self.token(token_id), "logprob": _finite(logprob), "bytes": exact}

    def completion(
        self, entries: Sequence[TokenLogprob | None], ids: Sequence[int], offset: int
    ) -> dict[str, Any]:
        """`choices[].logprobs` of completions: entry i is of token ids[i], None for a prompt's first token.

        `offset` is the place of the first token in the choice's text, in characters.
        """
        tokens = [self.token(token_id) for token_id in ids]
        offsets = []
        for token_id in ids:
            offsets.append(offset)
            offset += len(self._names.token_text(token_id))
        return {
            "tokens": tokens,
            "token_logprobs": [None if entry is None else _finite(entry.logprob) for entry in entries],
            "top_logprobs": [None if entry is None else self._by_token(entry) for entry in entries],
            "text_offset": offsets,
        }

    def _by_token(self, entry: TokenLogprob) -> orjson.Fragment:
        """Alternatives by text, best first, the chosen token among them; of equal texts the likelier stays."""
        named: dict[str, float] = {}
        for token_id, logprob in (*entry.top, (entry.token_id, entry.logprob)):
            named.setdefault(self.token(token_id), _finite(logprob))
        return _written(named)

    def prompt(self, entries: Sequence[TokenLogprob | None]) -> list[orjson.Fragment | None]:
        """vLLM's `prompt_logprobs`: per token a map from token ids to logprob, rank and text."""
        return [None if entry is None else self._by_id(entry) for entry in entries]

    def _by_id(self, entry: TokenLogprob) -> orjson.Fragment:
        ranked = {token_id: (logprob, rank) for rank, (token_id, logprob) in enumerate(entry.top, 1)}
        ranked[entry.token_id] = (entry.logprob, entry.rank)
        return _written(
            {
                str(token_id): {
                    "logprob": _finite(logprob),
                    "rank": rank,
                    "decoded_token": self.token(token_id),
                }
                for token_id, (logprob, rank) in ranked.items()
            }
        )
