"""Token events in, chat events out: the state of one request's answer. No I/O, no threads; used by one consumer.

Text is made here, on the consumer's side, so that the engine thread never detokenises. Stop strings are found here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta, PartEnd, PartStart
from edgewise.core.errors import EdgewiseError
from edgewise.core.requests import GenerationRequest, RequestTimings, TokenEvent, TokenLogprob, Usage
from edgewise.text.stream import TextStream
from edgewise.text.tokenizer import Tokenizer

Logprobs = tuple[TokenLogprob, ...] | None


class PartWriter(Protocol):
    """Turns the text of one choice into parts. Plain text is the simplest; tool and reasoning dialects plug in here."""

    def push(self, text: str, token_ids: tuple[int, ...], logprobs: Logprobs) -> list[ChatEvent]:
        """Events of more text. `text` may be empty when only tokens came."""
        ...

    def finish(self, reason: str) -> tuple[list[ChatEvent], str]:
        """Events that close what is open, and the finish reason (a writer that saw calls turns stop into tool_calls)."""
        ...


class TextWriter:
    """One text part for the whole answer, begun with its first delta."""

    __slots__ = ("_choice", "_open")

    def __init__(self, choice: int) -> None:
        self._choice = choice
        self._open = False

    def push(self, text: str, token_ids: tuple[int, ...], logprobs: Logprobs) -> list[ChatEvent]:
        delta = PartDelta(self._choice, text, token_ids, logprobs)
        if self._open:
            return [delta]
        self._open = True
        return [PartStart(self._choice, "text", f"text-{self._choice}"), delta]

    def finish(self, reason: str) -> tuple[list[ChatEvent], str]:
        return ([PartEnd(self._choice)] if self._open else []), reason


class _Choice:
    """One choice: its text so far, and tokens whose text is held back."""

    __slots__ = ("finished", "held_ids", "held_logprobs", "index", "num_tokens", "text", "writer")

    def __init__(self, index: int, text: TextStream, writer: PartWriter) -> None:
        self.index = index
        self.text = text
        self.writer = writer
        self.num_tokens = 0
        self.finished = False
        self.held_ids: list[int] = []
        self.held_logprobs: list[TokenLogprob] = []

    def take_held(self) -> tuple[tuple[int, ...], Logprobs]:
        ids, logprobs = tuple(self.held_ids), tuple(self.held_logprobs) or None
        self.held_ids.clear()
        self.held_logprobs.clear()
        return ids, logprobs


class Answer:
    """The answer of one request: feed it every TokenEvent in order, pass on what it returns.

    `stop_choice(choice)` is called when a stop string ended a choice that the engine still runs.
    """

    def __init__(
        self,
        request: GenerationRequest,
        tokenizer: Tokenizer,
        make_writer: Callable[[int], PartWriter],
        stop_choice: Callable[[int], None],
    ) -> None:
        sampling = request.sampling
        self.request = request
        self.finished = False  # the consumer has everything
        self.engine_finished = False  # the engine will say nothing more
        self.prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
        self.timings: RequestTimings | None = None
        self._stop_choice = stop_choice
        self._cached_tokens = 0
        self._first_token_s = 0.0
        self._engine_choices = sampling.n
        self._choices = [
            _Choice(
                index,
                TextStream(
                    tokenizer,
                    stop=sampling.stop,
                    include_stop=sampling.include_stop_str_in_output,
                    skip_special_tokens=sampling.skip_special_tokens,
                ),
                make_writer(index),
            )
            for index in range(sampling.n)
        ]

    @property
    def usage(self) -> Usage:
        """Tokens so far: of a choice, those up to the one that completed a stop string or ended it."""
        return Usage(
            prompt_tokens=len(self.request.prompt_token_ids),
            completion_tokens=sum(choice.num_tokens for choice in self._choices),
            cached_tokens=self._cached_tokens,
        )

    def feed(self, event: TokenEvent) -> list[ChatEvent]:
        """What an event means for the consumer; nothing for choices a stop string has ended already."""
        self._note(event)
        if self.finished:
            return []
        if event.finish_reason == "error":
            self.finished = True
            return [Failed(event.error or EdgewiseError("the engine gave no reason"))]
        choice = self._choices[event.choice]
        events = [] if choice.finished else self._advance(choice, event)
        if event.finish_reason == "cancelled":
            for other in self._choices:
                if not other.finished:
                    events += self._finish(other, "cancelled", None)
        return events

    def _note(self, event: TokenEvent) -> None:
        """Facts of the whole request that ride on events."""
        self._cached_tokens = max(self._cached_tokens, event.num_cached_tokens)
        if event.prompt_logprobs is not None:
            self.prompt_logprobs = event.prompt_logprobs
        if event.timings is not None:
            self.timings = event.timings
        if event.finish_reason is not None:
            self._engine_choices -= 1
            if event.finish_reason in ("cancelled", "error") or self._engine_choices == 0:
                self.engine_finished = True

    def _advance(self, choice: _Choice, event: TokenEvent) -> list[ChatEvent]:
        """Text of the event's tokens, up to a stop string, and the choice's end if this is it."""
        text = ""
        matched: str | None = None
        for i, token in enumerate(event.token_ids):
            chunk = choice.text.push((token,))
            choice.num_tokens += 1
            choice.held_ids.append(token)
            if event.logprobs is not None:
                choice.held_logprobs.append(event.logprobs[i])
            text += chunk.text
            if chunk.matched_stop is not None:
                matched = chunk.matched_stop
                break
        if matched is not None:
            events = self._write(choice, text, final=True) + self._finish(choice, "stop", matched)
            if event.finish_reason is None:
                self._stop_choice(choice.index)
            return events
        if event.finish_reason in (None, "cancelled"):
            return self._write(choice, text, final=False)
        text += choice.text.flush().text
        if event.stop_token_id is not None:
            choice.num_tokens += 1
        return self._write(choice, text, final=True) + self._finish(
            choice, str(event.finish_reason), event.stop_token_id
        )

    def _write(self, choice: _Choice, text: str, *, final: bool) -> list[ChatEvent]:
        """A delta, unless there is no text yet: tokens wait for the text they belong to, or for the end."""
        if not text and not (final and choice.held_ids):
            return []
        return choice.writer.push(text, *choice.take_held())

    def _finish(self, choice: _Choice, reason: str, matched: str | int | None) -> list[ChatEvent]:
        events: list[ChatEvent] = []
        if reason == "cancelled":
            events += self._write(choice, choice.text.flush().text, final=True)
        closing, reason = choice.writer.finish(reason)
        choice.finished = True
        self.finished = all(other.finished for other in self._choices)
        return [*events, *closing, Finish(choice.index, reason, self.usage, matched)]
