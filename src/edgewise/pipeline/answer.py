"""Token events in, chat events out: the state of one request's answer. No I/O, no threads; used by one consumer.

Text is made here, on the consumer's side, so that the engine thread never detokenises. Stop strings are found here too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta, PartEnd, PartStart
from edgewise.core.errors import EdgewiseError
from edgewise.core.requests import GenerationRequest, RequestTimings, TokenEvent, TokenLogprob, Usage
from edgewise.core.sampling import SamplingParams
from edgewise.text import TextChunk, TextStream, Tokenizer

Logprobs = tuple[TokenLogprob, ...] | None


class PartWriter(Protocol):
    """Turns the text of one choice into parts. Plain text is the simplest; tool and reasoning dialects plug in here."""

    @property
    def matched_stop(self) -> str | None:
        """A stop string the writer itself found: the choice ends there."""
        ...

    @property
    def hidden_reasoning_tokens(self) -> int:
        """Tokens of thinking that is in no part."""
        ...

    @property
    def bare_calls_seen(self) -> int:
        """Calls that were written as plain JSON."""
        ...

    def push(self, text: str, token_ids: tuple[int, ...], logprobs: Logprobs) -> list[ChatEvent]:
        """Events of more text. `text` may be empty when only tokens came."""
        ...

    def finish(self, reason: str) -> tuple[list[ChatEvent], str]:
        """Events that close what is open, and the finish reason (a writer that saw calls turns stop into tool_calls)."""
        ...


class TextWriter:
    """One text part for the whole answer, begun with its first delta."""

    __slots__ = ("_choice", "_open")

    matched_stop = None
    hidden_reasoning_tokens = 0
    bare_calls_seen = 0

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


@dataclass(frozen=True, slots=True)
class AnswerStyle:
    """How the text of an answer becomes parts."""

    make_writer: Callable[[int], PartWriter] = TextWriter
    visible_tokens: frozenset[int] = frozenset()  # control tokens whose text the writer must see
    writer_finds_stops: bool = False  # stop strings are the writer's business


PLAIN = AnswerStyle()


class _Choice:
    """One choice: its text so far, and tokens whose text is held back.

    Stop strings count only in text that begins after `min_tokens`: until then the text stream knows none of them.
    """

    __slots__ = (
        "_min_tokens",
        "_sampling",
        "_text",
        "_tokenizer",
        "_visible",
        "_waiting",
        "finished",
        "held_ids",
        "held_logprobs",
        "in_reasoning",
        "index",
        "num_reasoning_tokens",
        "num_tokens",
        "writer",
    )

    def __init__(
        self, index: int, tokenizer: Tokenizer, sampling: SamplingParams, style: AnswerStyle
    ) -> None:
        self.index = index
        self.writer = style.make_writer(index)
        self.num_tokens = 0
        self.num_reasoning_tokens = 0
        self.in_reasoning = False
        self.finished = False
        self.held_ids: list[int] = []
        self.held_logprobs: list[TokenLogprob] = []
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._visible = style.visible_tokens
        stop = () if style.writer_finds_stops else sampling.stop
        self._min_tokens = sampling.min_tokens if stop else 0
        self._waiting = 0  # tokens whose last character is not there yet
        self._text = self._text_stream(stop=() if self._min_tokens else stop)

    def _text_stream(self, *, stop: tuple[str, ...]) -> TextStream:
        return TextStream(
            self._tokenizer,
            stop=stop,
            include_stop=self._sampling.include_stop_str_in_output,
            skip_special_tokens=self._sampling.skip_special_tokens,
            keep=self._visible,
        )

    def push(self, token: int, logprob: TokenLogprob | None) -> TextChunk:
        """One more token; the text that has become certain."""
        self.num_tokens += 1
        self.held_ids.append(token)
        if logprob is not None:
            self.held_logprobs.append(logprob)
        chunk = self._text.push((token,))
        if self._min_tokens:
            self._waiting += 1 - len(chunk.token_ids)
            if self.num_tokens >= self._min_tokens and not self._waiting:
                self._min_tokens = 0
                self._text = self._text_stream(stop=self._sampling.stop)
        return chunk

    def flush(self) -> str:
        """The text that was held back, at the end."""
        return self._text.flush().text

    def counted(self, events: list[ChatEvent]) -> list[ChatEvent]:
        """The same events; the tokens of their reasoning are counted."""
        for event in events:
            if isinstance(event, PartStart):
                self.in_reasoning = event.kind == "reasoning"
            elif self.in_reasoning and isinstance(event, PartDelta):
                self.num_reasoning_tokens += len(event.token_ids)
        return events

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
        stop_choice: Callable[[int], None],
        style: AnswerStyle = PLAIN,
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
        self._choices = [_Choice(index, tokenizer, sampling, style) for index in range(sampling.n)]

    @property
    def num_bare_calls(self) -> int:
        """Calls so far that came as plain JSON, without the dialect's marks."""
        return sum(choice.writer.bare_calls_seen for choice in self._choices)

    @property
    def usage(self) -> Usage:
        """Tokens so far: of a choice, those up to the one that completed a stop string or ended it."""
        return Usage(
            prompt_tokens=len(self.request.prompt_token_ids),
            completion_tokens=sum(choice.num_tokens for choice in self._choices),
            cached_tokens=self._cached_tokens,
            reasoning_tokens=sum(
                choice.num_reasoning_tokens + choice.writer.hidden_reasoning_tokens
                for choice in self._choices
            ),
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
            chunk = choice.push(token, None if event.logprobs is None else event.logprobs[i])
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
            events = self._write(choice, text, final=False)
            if choice.writer.matched_stop is None:
                return events
            if event.finish_reason is None:
                self._stop_choice(choice.index)
            return events + self._finish(choice, "stop", None)
        text += choice.flush()
        if event.stop_token_id is not None:
            choice.num_tokens += 1
        asked = event.stop_token_id in self.request.sampling.stop_token_ids
        return self._write(choice, text, final=True) + self._finish(
            choice, str(event.finish_reason), event.stop_token_id if asked else None
        )

    def _write(self, choice: _Choice, text: str, *, final: bool) -> list[ChatEvent]:
        """A delta, unless there is no text yet: tokens wait for the text they belong to, or for the end."""
        if not text and not (final and choice.held_ids):
            return []
        return choice.counted(choice.writer.push(text, *choice.take_held()))

    def _finish(self, choice: _Choice, reason: str, matched: str | int | None) -> list[ChatEvent]:
        events: list[ChatEvent] = []
        if reason == "cancelled":
            events += self._write(choice, choice.flush(), final=True)
        closing, reason = choice.writer.finish(reason)
        choice.counted(closing)
        if (
            found := choice.writer.matched_stop
        ) is not None:  # perhaps only now, in what was held back to the end
            matched = found
            reason = "stop" if reason == "length" else reason
        choice.finished = True
        self.finished = all(other.finished for other in self._choices)
        return [*events, *closing, Finish(choice.index, reason, self.usage, matched, self.timings)]
