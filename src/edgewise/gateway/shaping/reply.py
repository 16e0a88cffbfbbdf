"""Repairs of replies, on chat events: what an upstream got wrong is put right on its way, as far as its profile says it gets things wrong.

In any case: every call that leaves has an id of its own and arguments that are a JSON object, and a finish reason never contradicts what was
said. Nothing waits longer than it must, so a repaired stream is still a stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from edgewise.chat.decoder import ChatDecoder
from edgewise.chat.reasoning import reasoning_dialect
from edgewise.core.chat import (
    ChatEvent,
    ChatRequest,
    Failed,
    Finish,
    PartDelta,
    PartEnd,
    PartKind,
    PartStart,
)
from edgewise.gateway.profile import Api, Fault, Kind, Profile
from edgewise.gateway.shaping.choices import is_unenforced
from edgewise.gateway.shaping.leaked import EndMarks, LeakedCalls
from edgewise.gateway.shaping.outgoing import Outgoing, Repairs
from edgewise.gateway.shaping.step import Body

_ALWAYS = frozenset((Fault.LEAKED_END_TOKENS, Fault.REASONING_FIELD))
_WITH_TOOLS = frozenset((Fault.LEAKED_TOOL_MARKUP, Fault.CALL_IDS, Fault.CALL_INDICES, Fault.FINISH_REASON))


def loses_schema(profile: Profile, api: Api, body: Body) -> bool:
    """Whether an answer's schema would be ignored: servers that are not ours know none on Anthropic's API, and do on the other."""
    if api is not Api.MESSAGES or profile.kind is Kind.EDGEWISE or Api.CHAT not in profile.apis:
        return False
    output = body.get("output_config")
    return bool(body.get("output_format") or (isinstance(output, dict) and output.get("format")))


def touches_reply(profile: Profile, api: Api, body: Body) -> bool:
    """Whether replies to this body of a client (before shaping) have to be read, rather than passed on as they come."""
    if api not in (Api.CHAT, Api.MESSAGES):
        return False
    faults = profile.faults
    if not _ALWAYS.isdisjoint(faults):
        return True
    if (Fault.STOP_STRINGS in faults) and (body.get("stop") or body.get("stop_sequences")):
        return True
    if Fault.STREAM_USAGE in faults and (api is Api.MESSAGES or body.get("stream_options")):
        return True
    if body.get("functions") and profile.kind is not Kind.EDGEWISE:
        return True  # they were sent as tools, and their calls have a form of their own
    if not body.get("tools"):
        return False
    # Edge-LLM's arguments may stop in the middle of a stream, and its finish reason hides that an answer was cut.
    flawed = profile.kind is Kind.EDGE_LLM or not _WITH_TOOLS.isdisjoint(faults)
    return flawed or _is_cut(profile, api, body) or is_unenforced(body, profile, api)


def _is_cut(profile: Profile, api: Api, body: Body) -> bool:
    """Whether one call is wanted at most, and the upstream may make more."""
    choice = body.get("tool_choice")
    disabled = isinstance(choice, dict) and choice.get("disable_parallel_tool_use") is True
    return Fault.PARALLEL_CALLS in profile.faults and (body.get("parallel_tool_calls") is False or disabled)


class ReplyRepair:
    """The repairs of one reply. Fed every event in order; a choice's rest comes with its Finish, and with Failed everybody's.

    `counts`: how often each repair had something to do, by its name.
    """

    def __init__(self, profile: Profile, chat: ChatRequest) -> None:
        self._repairs = Repairs.of(profile, chat)
        self._named = chat.tool_choice.named
        self._choices: dict[int, _Choice] = {}
        self._ids: set[str] = set()
        self.counts: dict[str, int] = {}

    def __call__(self, events: Iterable[ChatEvent]) -> list[ChatEvent]:
        return self.push(events)

    def push(self, events: Iterable[ChatEvent]) -> list[ChatEvent]:
        """The same events, repaired."""
        return [one for event in events for one in self._of(event)]

    def finish(self) -> list[ChatEvent]:
        """Close what an upstream left open that ended without a word."""
        return [one for choice in self._choices.values() for one in choice.close()]

    def _of(self, event: ChatEvent) -> list[ChatEvent]:
        if isinstance(event, Failed):
            return [*self.finish(), event]
        number = event.choice
        choice = self._choices.get(number)
        if choice is None:
            choice = _Choice(number, self._repairs, self._named, self._ids, self.counts)
            self._choices[number] = choice
        return choice.take(event)


class _Choice:
    """One choice: text through the decoder, if it needs one, then everything through `Outgoing`."""

    def __init__(
        self, number: int, repairs: Repairs, named: bool, ids: set[str], counts: dict[str, int]
    ) -> None:
        self._number = number
        self._repairs = repairs
        self._out = Outgoing(number, repairs, named, ids, counts)
        self._decodes = repairs.leaked_calls or repairs.bare_calls or repairs.reasoning_in_text
        self._end_marks: EndMarks | None = None
        self._leaked: LeakedCalls | None = None
        self._decoder: ChatDecoder | None = None
        self._kind: PartKind | None = None
        self._done = False

    def take(self, event: ChatEvent) -> list[ChatEvent]:
        if self._done:
            return []
        match event:
            case PartStart(kind=kind):
                return [*self._end_part(), *self._start_part(event, kind)]
            case PartDelta():
                return self._delta(event)
            case PartEnd():
                return self._end_part()
            case Finish():
                closed = self._end_part()
                self._done = True
                return [*closed, *self._out.finish(event)]
            case _:
                return [event]

    def close(self) -> list[ChatEvent]:
        return self._end_part()

    def _start_part(self, event: PartStart, kind: PartKind) -> list[ChatEvent]:
        self._kind = kind
        if kind != "text":
            return self._out.start(event)
        self._end_marks = EndMarks() if self._repairs.end_marks else None
        self._decoder = self._new_decoder() if self._decodes else None
        return [] if self._decoder is not None else self._out.start(event)

    def _new_decoder(self) -> ChatDecoder:
        repairs = self._repairs
        self._leaked = LeakedCalls(repairs.tools) if repairs.leaked_calls else None
        return ChatDecoder(
            self._number,
            tools=repairs.tools,
            parser=self._leaked,
            splitter=reasoning_dialect("think_auto").splitter(False) if repairs.reasoning_in_text else None,
            bare_calls=repairs.bare_calls and bool(repairs.tools),
        )

    def _delta(self, event: PartDelta) -> list[ChatEvent]:
        if self._kind == "text" and self._end_marks is not None:
            event = replace(event, text=self._end_marks.push(event.text))
        return self._text(event)

    def _text(self, event: PartDelta) -> list[ChatEvent]:
        if self._decoder is None or self._kind != "text":
            return self._out.delta(event)
        return self._out.all(self._decoder.push(event.text, event.token_ids, event.logprobs))

    def _end_part(self) -> list[ChatEvent]:
        if self._kind is None:
            return []
        events = self._end_text() if self._kind == "text" else self._out.end()
        self._kind = None
        return events

    def _end_text(self) -> list[ChatEvent]:
        """What the text's readers held back, and the end of the part it belongs to."""
        events: list[ChatEvent] = []
        if self._end_marks is not None:
            if rest := self._end_marks.finish():
                events += self._text(PartDelta(self._number, rest))
            self._out.count("end-marks", self._end_marks.found)
        if self._decoder is None:
            return [*events, *self._out.end()]
        decoded, _ = self._decoder.finish("stop")
        events += self._out.all(decoded)
        self._out.count("leaked-calls", self._leaked is not None and self._leaked.found)
        self._out.count("bare-calls", self._decoder.bare_calls_seen)
        self._decoder = self._end_marks = None
        return events
