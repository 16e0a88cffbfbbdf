"""The last stage of a reply's repairs: what leaves for one choice, whichever reader its parts came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from edgewise.chat.bare_calls import new_call_id
from edgewise.chat.custom_input import CustomInput
from edgewise.core.chat import (
    ChatEvent,
    ChatRequest,
    Finish,
    PartDelta,
    PartEnd,
    PartKind,
    PartStart,
    ToolDefinition,
)
from edgewise.core.requests import Usage
from edgewise.gateway.profile import Fault, Profile
from edgewise.gateway.shaping.arguments import Arguments
from edgewise.gateway.shaping.choices import UNENFORCED
from edgewise.gateway.shaping.stops import StopStrings

_CALLS = ("tool_call", "custom_call")
_CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Repairs:
    """What is to be done for one request. `asked_for`: a call is required, and the upstream may answer otherwise or in plain JSON."""

    tools: Sequence[ToolDefinition] = ()
    stops: Sequence[str] = ()
    end_marks: bool = False
    leaked_calls: bool = False
    bare_calls: bool = False
    asked_for: bool = False
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
        asked_for = choice.mode == "required" and not UNENFORCED.isdisjoint(faults)
        leaked = Fault.LEAKED_TOOL_MARKUP in faults and bool(callable_tools)
        stops = chat.sampling.get("stop") or ()
        return cls(
            tools=callable_tools,
            stops=([stops] if isinstance(stops, str) else stops) if Fault.STOP_STRINGS in faults else (),
            end_marks=Fault.LEAKED_END_TOKENS in faults,
            leaked_calls=leaked,
            bare_calls=(leaked and chat.output_format is None) or asked_for,
            asked_for=asked_for,
            reasoning_in_text=Fault.REASONING_FIELD in faults,
            one_call=bool(chat.tools) and (not choice.parallel or choice.named),
            estimate_usage=Fault.STREAM_USAGE in faults,
            prompt_chars=sum(len(message.text) for message in chat.messages),
        )


class Outgoing:
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
        elif reason == "length" and self._repairs.asked_for and self._num_calls:
            reason = self._reason("tool_calls")  # what was cut is only what the model went on to say
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
