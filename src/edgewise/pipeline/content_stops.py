"""Stop strings where an answer has parts: they count in its text, never in thinking or in the arguments of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgewise.core.chat import ChatEvent, PartDelta, PartEnd, PartStart
from edgewise.pipeline.answer import Logprobs, PartWriter
from edgewise.text.stops import StopAutomaton


class ContentStops:
    """A PartWriter round another one. What may become a stop string is held back; after a match nothing more is written.

    `matched_stop` is the string that was found. The match itself is dropped unless `include`.
    """

    def __init__(
        self, writer: PartWriter, stops: Sequence[str], *, include: bool = False, min_tokens: int = 0
    ) -> None:
        self.matched_stop: str | None = None
        self._writer = writer
        self._automaton = StopAutomaton(stops)
        self._include = include
        self._min_tokens = min_tokens
        self._num_tokens = 0
        self._choice = 0
        self._state = 0
        self._in_text = False
        self._held: PartDelta | None = None

    @property
    def hidden_reasoning_tokens(self) -> int:
        return self._writer.hidden_reasoning_tokens

    @property
    def bare_calls_seen(self) -> int:
        return self._writer.bare_calls_seen

    def push(self, text: str, token_ids: tuple[int, ...], logprobs: Logprobs) -> list[ChatEvent]:
        events = [] if self.matched_stop is not None else self._writer.push(text, token_ids, logprobs)
        found = self._filter(events)
        self._num_tokens += len(token_ids)
        return found

    def finish(self, reason: str) -> tuple[list[ChatEvent], str]:
        """After a match the open text ends there: what the writer still held back came after it."""
        events, reason = self._writer.finish(reason)
        passed = [] if self.matched_stop is not None else self._filter(events)
        if self.matched_stop is not None:
            passed.append(PartEnd(self._choice))
        return passed, reason

    def _filter(self, events: list[ChatEvent]) -> list[ChatEvent]:
        passed: list[ChatEvent] = []
        for event in events:
            match event:
                case PartDelta() if self._in_text:
                    passed += self._look(event)
                    if self.matched_stop is not None:
                        return passed
                case PartStart():
                    self._in_text = event.kind == "text"
                    passed.append(event)
                case PartEnd():
                    passed += self._release()
                    self._in_text = False
                    passed.append(event)
                case _:
                    passed.append(event)
        return passed

    def _look(self, delta: PartDelta) -> list[ChatEvent]:
        """Pass on what cannot belong to a stop string any more."""
        if self._num_tokens < self._min_tokens:
            return [delta]
        held = "" if self._held is None else self._held.text
        joined = delta if self._held is None else self._held.joined(delta)
        for position, char in enumerate(delta.text, start=len(held) + 1):
            self._state = self._automaton.step(self._state, char)
            if (match := self._automaton.match[self._state]) is not None:
                self.matched_stop = match
                end = position if self._include else position - len(match)
                self._held, self._choice = None, delta.choice
                return [replace(joined, text=joined.text[:end])]
        depth = self._automaton.depth[self._state]
        certain = len(joined.text) - depth
        self._held = None
        if not depth:
            return [joined]
        self._held = PartDelta(delta.choice, joined.text[certain:])
        return [replace(joined, text=joined.text[:certain])] if certain or joined.token_ids else []

    def _release(self) -> list[ChatEvent]:
        held, self._held, self._state = self._held, None, 0
        return [] if held is None else [held]
