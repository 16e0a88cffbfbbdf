"""Repairs of replies, on chat events: what an upstream got wrong is put right on its way, as far as its profile says it gets things wrong.

In any case: every call that leaves has an id of its own and arguments that are a JSON object, and a finish reason never contradicts what was
said. Nothing waits longer than it must, so a repaired stream is still a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from edgewise.chat.bare_calls import new_call_id
from edgewise.chat.custom_input import CustomInput
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
    ToolDefinition,
)
from edgewise.core.requests import Usage
from edgewise.gateway.profile import Api, Fault, Kind, Profile
from edgewise.gateway.shaping.arguments import Arguments
from edgewise.gateway.shaping.choices import can_bind, is_unenforced
from edgewise.gateway.shaping.leaked import EndMarks, LeakedCalls
from edgewise.gateway.shaping.step import Body
from edgewise.gateway.shaping.stops import StopStrings

_ALWAYS = frozenset((Fault.LEAKED_END_TOKENS, Fault.REASONING_FIELD))
_WITH_TOOLS = frozenset((Fault.LEAKED_TOOL_MARKUP, Fault.CALL_INDICES))
_CALLS = ("tool_call", "custom_call")
_CHARS_PER_TOKEN = 4


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


@dataclass(frozen=True, slots=True)
class Repairs:
    """What is to be done for one request."""

    tools: Sequence[ToolDefinition] = ()
    stops: Sequence[str] = ()
    end_marks: bool = False
    leaked_calls: bool = False
    bare_calls: bool = False
    reasoning_in_text: bool = False
    one_call: bool = False
    estimate_usage: bool = False
    prompt_chars: int = 0

    @classmethod
    def of(cls, profile: Profile, chat: ChatRequest) -> Repairs:
        faults = profile.faults
        choice = chat.tool_choice
        names = choice.names
        offered = [tool for tool in chat.tools if names is None or tool.name in names]
        callable_tools = [] if choice.mode == "none" else offered
        ignored = {Fault.REQUIRED_CHOICE, Fault.NAMED_CHOICE}
        bound = choice.mode == "required" and not ignored.isdisjoint(faults) and can_bind(profile, Api.CHAT)
        leaked = Fault.LEAKED_TOOL_MARKUP in faults and bool(callable_tools)
        stops = chat.sampling.get("stop") or ()
        return cls(
            tools=callable_tools,
            stops=([stops] if isinstance(stops, str) else stops) if Fault.STOP_STRINGS in faults else (),
            end_marks=Fault.LEAKED_END_TOKENS in faults,
            leaked_calls=leaked,
            bare_calls=(leaked and chat.output_format is None) or bound,
            reasoning_in_text=Fault.REASONING_FIELD in faults,
            one_call=bool(chat.tools) and (not choice.parallel or choice.named),
            estimate_usage=Fault.STREAM_USAGE in faults,
            prompt_chars=sum(len(message.text) for message in chat.messages),
        )


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
    """One choice: text through the decoder, if it needs one, then everything through `_Outgoing`."""

    def __init__(
        self, number: int, repairs: Repairs, named: bool, ids: set[str], counts: dict[str, int]
    ) -> None:
        self._number = number
        self._repairs = repairs
        self._out = _Outgoing(number, repairs, named, ids, counts)
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


class _Outgoing:
    """What leaves for one choice: text up to its stop string, calls with ids and whole arguments, a reason that fits."""

    def __init__(
        self, number: int, repairs: Repairs, named: bool, ids: set[str], counts: dict[str, int]
    ) -> None:
        self._number = number
        self._repairs = repairs
        self._named = named
        self._tools = {tool.name: tool for tool in repairs.tools}
        self._ids = ids
        self._counts = counts
        self._stops = StopStrings(repairs.stops) if repairs.stops else None
        self._kind: PartKind | None = None
        self._arguments: Arguments | None = None
        self._custom: CustomInput | None = None
        self._muted = False
        self._opening: PartStart | None = None  # a text's start waits for its first text
        self._num_calls = 0
        self._num_whole_calls = 0
        self._num_pieces = 0

    def count(self, name: str, times: int = 1) -> None:
        if times:
            self._counts[name] = self._counts.get(name, 0) + times

    def all(self, events: Iterable[ChatEvent]) -> list[ChatEvent]:
        """A decoder's events."""
        made: list[ChatEvent] = []
        for event in events:
            match event:
                case PartStart():
                    self.count("thinking-in-text", event.kind == "reasoning")
                    made += [*self.end(), *self.start(event)]
                case PartDelta():
                    made += self.delta(event)
                case PartEnd():
                    made += self.end()
                case _:
                    made.append(event)
        return made

    def start(self, event: PartStart) -> list[ChatEvent]:
        self._kind = event.kind
        self._muted = self._stops is not None and self._stops.matched is not None
        if event.kind not in _CALLS:
            self._opening = event
            return []
        return self._start_call(event)

    def _start_call(self, event: PartStart) -> list[ChatEvent]:
        if self._muted or (self._repairs.one_call and self._num_calls):
            self._muted = True
            self.count("calls-cut")
            return []
        self._num_calls += 1
        if not event.id or event.id in self._ids:
            event = replace(event, id=new_call_id())
            self.count("call-ids")
        self._ids.add(event.id)
        tool = self._tools.get(event.name.strip())
        self._arguments = Arguments() if event.kind == "tool_call" else None
        self._custom = None
        if tool is not None and tool.kind == "custom" and event.kind == "tool_call":
            event = replace(event, kind="custom_call")
            self._custom = CustomInput()
        return [replace(event, name=event.name.strip())]

    def delta(self, event: PartDelta) -> list[ChatEvent]:
        self._num_pieces += bool(event.text)
        if self._muted:
            return []
        if self._kind in _CALLS:
            return self._emit(event, self._of_call(event.text))
        if self._kind == "text" and self._stops is not None:
            text = self._stops.push(event.text)
            return self._emit(event, text)
        return self._emit(event, event.text)

    def _of_call(self, text: str) -> str:
        if self._arguments is None:
            return text
        text = self._arguments.push(text)
        return text if self._custom is None else self._custom.push(text)

    def _emit(self, event: PartDelta, text: str) -> list[ChatEvent]:
        """A delta with this text; an empty one only where it carries tokens."""
        if not text and not event.token_ids and not event.logprobs:
            return []
        opening = [self._opening] if self._opening is not None else []
        self._opening = None
        return [*opening, replace(event, text=text)]

    def end(self) -> list[ChatEvent]:
        if self._kind is None:
            return []
        kind, self._kind = self._kind, None
        if self._muted:
            self._muted = False
            self._opening = None
            return []
        rest = self._rest(kind)
        events = self._emit(PartDelta(self._number, ""), rest)
        if self._opening is not None:  # nothing was said in it
            self._opening = None
            return []
        return [*events, PartEnd(self._number)]

    def _rest(self, kind: PartKind) -> str:
        if kind == "text" and self._stops is not None:
            return self._stops.finish()
        if self._arguments is None or kind not in _CALLS:
            self._num_whole_calls += kind in _CALLS
            return ""
        arguments, self._arguments = self._arguments, None
        text = arguments.finish()
        if arguments.cut or arguments.malformed:
            self.count("arguments-closed")
        self._num_whole_calls += not arguments.cut
        return text if self._custom is None else self._custom.push(text) + self._custom.finish()

    def finish(self, event: Finish) -> list[ChatEvent]:
        """The end, with a reason that fits what was said."""
        reason, matched = event.reason, event.matched_stop
        if self._stops is not None and self._stops.matched is not None:
            reason, matched = "stop", self._stops.matched
            self.count("stop-strings")
        if reason in ("stop", "tool_calls"):
            reason = self._reason(reason)
        if reason != event.reason:
            self.count("finish-reason")
        return [Finish(self._number, reason, self._usage(event.usage), matched)]

    def _reason(self, told: str) -> str:
        """A named call's stays "stop", as on OpenAI's API, unless the upstream says otherwise."""
        if self._num_calls > self._num_whole_calls:
            return "length"
        if self._num_calls and (told == "tool_calls" or not self._named):
            return "tool_calls"
        return "stop"

    def _usage(self, usage: Usage) -> Usage:
        """Counts where the upstream told none: a piece is about a token, and so are four characters of a prompt."""
        if not self._repairs.estimate_usage or usage.prompt_tokens or usage.completion_tokens:
            return usage
        self.count("usage-estimated")
        prompt = max(1, self._repairs.prompt_chars // _CHARS_PER_TOKEN)
        return replace(usage, prompt_tokens=prompt, completion_tokens=self._num_pieces)
