"""ThinkingBudget: counts an answer's thinking tokens, and says when its closing text is to be forced."""

from __future__ import annotations

from edgewise.core.grammar import Thinking
from edgewise.grammar.tokens import TokenTable

_WHITE = b" \t\r\n"


class ThinkingBudget:
    """Follows an answer token by token. May be copied while it runs."""

    def __init__(self, thinking: Thinking, table: TokenTable) -> None:
        assert thinking.budget_tokens is not None
        self._bytes_of = table.bytes
        self._start = thinking.start.encode()
        self._end = thinking.end.encode()
        self._left = thinking.budget_tokens
        self._is_open = thinking.already_open
        self._is_over = False
        self._text = b""  # what may be the start mark, then the last bytes, in which the end mark may begin
        self.closing_ids = table.encode(thinking.closing or thinking.end)

    @property
    def is_due(self) -> bool:
        """Whether the thinking must be closed now."""
        return self._is_open and not self._is_over and self._left <= 0

    def accept(self, token: int) -> None:
        if self._is_over:
            return
        self._text += self._bytes_of[token]
        if self._is_open:
            self._left -= 1
        else:
            self._look_for_start()
        if self._is_open:
            self._is_over = self._end in self._text
            self._text = self._text[-len(self._end) :]

    def _look_for_start(self) -> None:
        text = self._text.lstrip(_WHITE)
        if text.startswith(self._start):
            self._is_open = True
            self._text = text[len(self._start) :]
        elif not self._start.startswith(text):
            self._is_over = True
