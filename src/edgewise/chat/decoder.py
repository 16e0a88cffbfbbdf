"""ChatDecoder: the text of one choice as parts. Thinking is split off first, then calls are read; what is left is text.

The parts of a choice never overlap. Tokens ride on the deltas: one whose text is held back, or belongs to a mark that is no part's text,
rides with the next delta, or with the last. So a part's end is reported when the next part begins, or at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgewise.chat.bare_calls import BareCallReader
from edgewise.chat.custom_input import CustomInput
from edgewise.chat.dialects.events import ArgumentPiece, CallEnd, CallStart, TextPiece, ToolEvent
from edgewise.chat.splitter import ReasoningSplitter
from edgewise.core.chat import (
    ChatEvent,
    PartDelta,
    PartEnd,
    PartKind,
    PartStart,
    ToolChoice,
    ToolDefinition,
)
from edgewise.core.requests import TokenLogprob

Logprobs = tuple[TokenLogprob, ...] | None


class Parser(Protocol):
    """What reads calls: a dialect's parser."""

    def push(self, text: str) -> list[ToolEvent]: ...

    def finish(self) -> list[ToolEvent]: ...


class ChatDecoder:
    """Writes the parts of one choice (a PartWriter). Not for several threads at once.

    `bare_calls_seen` counts calls the model wrote as plain JSON, `hidden_reasoning_tokens` the tokens of thinking that is not shown.
    """

    matched_stop = None  # stop strings are not its business

    def __init__(
        self,
        choice: int,
        *,
        tools: Sequence[ToolDefinition] = (),
        choice_mode: ToolChoice | None = None,
        parser: Parser | None = None,
        splitter: ReasoningSplitter | None = None,
        bare_calls: bool = False,
        show_reasoning: bool = True,
    ) -> None:
        """`tools` are those that may be called. Without `parser` there are no calls but bare ones."""
        self.hidden_reasoning_tokens = 0
        self._choice = choice
        self._tools = {tool.name: tool for tool in tools}
        self._tool_choice = choice_mode or ToolChoice()
        self._parser = parser
        self._splitter = splitter
        self._show_reasoning = show_reasoning
        self._bare = BareCallReader(tools, parallel=self._tool_choice.parallel) if bare_calls else None
        if splitter is not None:
            splitter.busy = lambda: self._in_call
        self._in_call = False
        self._custom: CustomInput | None = None
        self._complete_calls = 0
        self._events: list[ChatEvent] = []
        self._open: PartKind | None = None
        self._num_texts = 0
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []

    @property
    def bare_calls_seen(self) -> int:
        return 0 if self._bare is None else self._bare.calls_seen

    def push(self, text: str, token_ids: tuple[int, ...], logprobs: Logprobs) -> list[ChatEvent]:
        """Events of more text."""
        self._ids += token_ids
        self._logprobs += logprobs or ()
        if self._splitter is None:
            self._content(text)
        else:
            for kind, piece in self._splitter.push(text):
                self._split(kind, piece)
            if self._splitter.thinking and not self._show_reasoning:
                self.hidden_reasoning_tokens += len(token_ids)
        return self._taken()

    def finish(self, reason: str) -> tuple[list[ChatEvent], str]:
        """Events that close what is open, and the finish reason: a stop after calls is `tool_calls`, unless the call was named."""
        if self._splitter is not None:
            for kind, piece in self._splitter.finish():
                self._split(kind, piece)
        if self._bare is not None:
            self._read(self._bare.finish(), bare=True)
        if self._parser is not None:
            self._read(self._parser.finish())
        self._close()
        if reason == "stop" and self._complete_calls and not self._tool_choice.named:
            reason = "tool_calls"
        return self._taken(), reason

    def _taken(self) -> list[ChatEvent]:
        events, self._events = self._events, []
        return events

    # -- what the text is

    def _split(self, kind: str, text: str) -> None:
        if kind == "content":
            self._content(text)
        elif self._show_reasoning:
            self._add("reasoning", text)

    def _content(self, text: str) -> None:
        if not text:
            return
        if self._bare is not None:
            self._read(self._bare.push(text), bare=True)
        else:
            self._marked(text)

    def _marked(self, text: str) -> None:
        """Content in which the dialect may mark calls."""
        if self._parser is None:
            self._add("text", text)
        else:
            self._read(self._parser.push(text))

    def _read(self, events: list[ToolEvent], *, bare: bool = False) -> None:
        for event in events:
            match event:
                case TextPiece(text):
                    if bare:
                        self._marked(text)
                    else:
                        self._add("text", text)
                case CallStart(call_id, name):
                    self._start_call(call_id, name)
                case ArgumentPiece(text):
                    self._add_arguments(text)
                case CallEnd(complete):
                    self._end_call(complete)

    def _start_call(self, call_id: str, name: str) -> None:
        tool = self._tools.get(name)
        is_custom = tool is not None and tool.kind == "custom"
        self._in_call = True
        self._custom = CustomInput() if is_custom else None
        self._begin("custom_call" if is_custom else "tool_call", call_id, name)

    def _add_arguments(self, text: str) -> None:
        if self._custom is not None:
            text = self._custom.push(text)
        if text:
            self._delta(text)

    def _end_call(self, complete: bool) -> None:
        if self._custom is not None and (rest := self._custom.finish()):
            self._delta(rest)
        self._in_call = False
        self._complete_calls += complete

    # -- parts

    def _add(self, kind: PartKind, text: str) -> None:
        """More text of a kind that has one part at a time."""
        if self._open != kind:
            self._num_texts += 1
            self._begin(kind, f"{kind}-{self._choice}-{self._num_texts}")
        self._delta(text)

    def _begin(self, kind: PartKind, part_id: str, name: str = "") -> None:
        if self._open is not None:
            self._events.append(PartEnd(self._choice))
        self._open = kind
        self._events.append(PartStart(self._choice, kind, part_id, name))

    def _delta(self, text: str) -> None:
        self._events.append(PartDelta(self._choice, text, tuple(self._ids), tuple(self._logprobs) or None))
        self._ids.clear()
        self._logprobs.clear()

    def _close(self) -> None:
        """Tokens that no delta took ride on an empty one."""
        if self._ids or self._logprobs:
            if self._open is None:
                self._add("text", "")
            else:
                self._delta("")
        if self._open is not None:
            self._events.append(PartEnd(self._choice))
            self._open = None
