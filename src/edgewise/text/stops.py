"""Stop strings as an automaton (Aho-Corasick): one step a character, whatever the number of strings."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from edgewise.core.errors import InvalidRequestError
from edgewise.core.sampling import MAX_STOP_CHARS


class StopAutomaton:
    """Finds the first stop string to complete in a text fed character by character. Immutable; a state is a number, 0 at first.

    State s stands for the longest suffix of the text that begins some stop string; `depth[s]` is its length, so that many
    characters, and no more, might still become part of a match.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._fallback = [0]
        self.depth = [0]
        self.match: list[str | None] = [None]  # the longest stop string that ends in this state
        for stop in stops:
            if not 0 < len(stop) <= MAX_STOP_CHARS:
                raise InvalidRequestError(
                    f"a stop string must have 1 to {MAX_STOP_CHARS} characters", param="stop"
                )
            self._add(stop)
        self._link()

    def _add(self, stop: str) -> None:
        state = 0
        for char in stop:
            if char not in self._next[state]:
                self._next[state][char] = len(self._next)
                self._next.append({})
                self._fallback.append(0)
                self.depth.append(self.depth[state] + 1)
                self.match.append(None)
            state = self._next[state][char]
        self.match[state] = stop

    def _link(self) -> None:
        """Breadth first: where to go on when the next character does not follow, and which shorter strings end here as well."""
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for char, child in self._next[state].items():
                self._fallback[child] = self.step(self._fallback[state], char) if state else 0
                self.match[child] = self.match[child] or self.match[self._fallback[child]]
                queue.append(child)

    def step(self, state: int, char: str) -> int:
        """The state after one more character."""
        while state and char not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(char, 0)
