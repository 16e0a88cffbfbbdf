"""Repairs of replies: what leaves is well formed however an upstream cut it, and a sound reply leaves as it came."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgewise.core.chat import (
    ChatEvent,
    ChatRequest,
    Failed,
    Finish,
    PartDelta,
    PartEnd,
    PartStart,
    ToolChoice,
    ToolDefinition,
)
from edgewise.core.grammar import OutputFormat
from edgewise.core.requests import Usage
from edgewise.gateway.profile import Api, Fault, Kind, Profile
from edgewise.gateway.shaping import ReplyRepair, touches_reply
from edgewise.gateway.shaping.leaked import END_MARKS, EndMarks
from edgewise.protocols.reply import Reply, ReplyPart
from tests.gateway.shaping_cases import TOOL, USER, messages, profile

WRITE = ToolDefinition(
    "write_file",
    None,
    {"type": "object", "properties": {"path": {"type": "string"}, "count": {"type": "integer"}}},
)
PATCH = ToolDefinition("patch", None, None, kind="custom")
TOOLS = (WRITE, PATCH)
USAGE = Usage(10, 5)


def text(*pieces: str, kind: Any = "text") -> list[ChatEvent]:
    return [PartStart(0, kind, "t"), *(PartDelta(0, piece) for piece in pieces), PartEnd(0)]


def called(*pieces: str, name: str = "write_file", call_id: str = "c1") -> list[ChatEvent]:
    return [PartStart(0, "tool_call", call_id, name), *(PartDelta(0, piece) for piece in pieces), PartEnd(0)]


def finish(reason: str = "stop", usage: Usage = USAGE) -> Finish:
    return Finish(0, reason, usage)


def request(**more: Any) -> ChatRequest:
    return ChatRequest(messages=(), **{"tools": TOOLS, **more})


def repaired(
    events: list[ChatEvent], *faults: Fault, kind: Kind = Kind.OPENAI, **asked: Any
) -> tuple[list[ReplyPart], Finish, ReplyRepair]:
    repair = ReplyRepair(profile(*faults, kind=kind), request(**asked))
    out = [one for event in events for one in repair([event])] + repair([])
    check_form(out)
    reply = Reply.empty(1)
    reply.add(out)
    end = out[-1]
    assert isinstance(end, Finish)
    return reply.choices[0].parts, end, repair


def check_form(events: list[ChatEvent]) -> None:
    """Parts open and close in turn, and nothing follows the end."""
    is_open = False
    for i, event in enumerate(events):
        match event:
            case PartStart():
                assert not is_open
                is_open = True
            case PartDelta():
                assert is_open
            case PartEnd():
                assert is_open
                is_open = False
            case Finish() | Failed():
                assert not is_open
                assert i == len(events) - 1


def joined(events: list[ChatEvent]) -> list[ChatEvent]:
    """A part's deltas as one: a key waits for its value."""
    made: list[ChatEvent] = []
    for event in events:
        if isinstance(event, PartDelta) and made and isinstance(made[-1], PartDelta):
            made[-1] = made[-1].joined(event)
        else:
            made.append(event)
    return made


SOUND: list[list[ChatEvent]] = [
    [*text("Hel", "lo"), finish()],
    [*text("thought", kind="reasoning"), *text("Hello"), finish("length")],
    [*text("Now:"), *called('{"path": ', '"a"}'), *called("{}", call_id="c2"), finish("tool_calls")],
]


@pytest.mark.parametrize("events", SOUND)
def test_a_sound_reply_leaves_as_it_came(events: list[ChatEvent]) -> None:
    assert ReplyRepair(profile(*Fault), request()).push(events)[-1] == events[-1]
    repair = ReplyRepair(profile(), request())
    assert joined(repair.push(events)) == joined(events)
    assert repair.counts == {}


@pytest.mark.parametrize("mark", END_MARKS)
def test_end_marks_are_cut_off_however_they_come(mark: str) -> None:
    for cut in range(len(mark) + 1):
        marks = EndMarks()
        assert marks.push("Bye." + mark[:cut]) + marks.push(mark[cut:] + "\n") + marks.finish() == "Bye."
    marks = EndMarks()
    spoken = f"The mark {mark} ends a turn."
    assert marks.push(spoken) + marks.finish() == spoken


def test_half_a_mark_is_text_and_struck_out_text_keeps_its_end() -> None:
    for said in ("a < b <", "<s>old</s>", "see [E"):
        marks = EndMarks()
        assert "".join(map(marks.push, said)) + marks.finish() == said


def test_leaked_end_marks_leave_the_reply_only_where_they_leak() -> None:
    events = [*text("Hi<|end", "oftext|>"), finish()]
    parts, _, repair = repaired(events, Fault.LEAKED_END_TOKENS)
    assert [part.text for part in parts] == ["Hi"]
    assert repair.counts == {"end-marks": 1}
    parts, _, _ = repaired(events)
    assert [part.text for part in parts] == ["Hi<|endoftext|>"]
    parts, _, _ = repaired([*text("<|im_end|>"), finish()], Fault.LEAKED_END_TOKENS)
    assert parts == []


LEAKED = [
    '<tool_call>\n{"name": "write_file", "arguments": {"path": "a", "count": 2}}\n</tool_call>',
    "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=count>\n2\n</parameter>\n</function>\n</tool_call>",
    "<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=count>\n2\n</parameter>\n</function>",
    "<tool_call>write_file\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n<arg_key>count</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
    '[TOOL_CALLS][{"name": "write_file", "arguments": {"path": "a", "count": 2}}]',
    '<|python_tag|>{"name": "write_file", "parameters": {"path": "a", "count": 2}}',
    '{"name": "write_file", "arguments": {"path": "a", "count": 2}}',
    '```json\n{"name": "write_file", "arguments": {"path": "a", "count": 2}}\n```',
]


@pytest.mark.parametrize("notation", LEAKED)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_calls_in_the_text_become_calls(notation: str, size: int) -> None:
    pieces = [notation[i : i + size] for i in range(0, len(notation), size)]
    parts, end, repair = repaired([*text(*pieces), finish()], Fault.LEAKED_TOOL_MARKUP)
    counted = "leaked-calls" if notation in LEAKED[:6] else "bare-calls"
    assert repair.counts == {counted: 1, "finish-reason": 1}
    assert [(part.kind, part.name) for part in parts] == [("tool_call", "write_file")]
    assert json.loads(parts[0].text) == {"path": "a", "count": 2}
    assert parts[0].id.startswith("call_")
    assert end.reason == "tool_calls"


def test_text_before_leaked_calls_stays_and_other_text_is_left_alone() -> None:
    parts, _, _ = repaired([*text("I write. ", LEAKED[0]), finish()], Fault.LEAKED_TOOL_MARKUP)
    assert [part.kind for part in parts] == ["text", "tool_call"]
    odd = 'a < b, [1], functools and <tool> {"name": "unknown", "arguments": {}} <tool_cal'
    parts, end, _ = repaired([*text(*odd), finish()], Fault.LEAKED_TOOL_MARKUP)
    assert ("".join(part.text for part in parts), end.reason) == (odd, "stop")


def test_a_leak_is_not_looked_for_where_none_is_known_or_no_tool_is_offered() -> None:
    events = [*text(LEAKED[0]), finish()]
    assert [part.kind for part in repaired(events)[0]] == ["text"]
    assert [part.kind for part in repaired(events, Fault.LEAKED_TOOL_MARKUP, tools=())[0]] == ["text"]


def test_json_that_was_asked_for_is_no_call() -> None:
    events = [*text(LEAKED[6]), finish()]
    parts, _, _ = repaired(events, Fault.LEAKED_TOOL_MARKUP, output_format=OutputFormat("json_object"))
    assert [part.kind for part in parts] == ["text"]


def test_an_answer_bound_by_schema_is_the_call_it_stands_for() -> None:
    choice = ToolChoice("required", ("write_file",), named=True)
    events = [*text(LEAKED[6]), finish()]
    parts, end, _ = repaired(events, Fault.NAMED_CHOICE, kind=Kind.EDGE_LLM, tool_choice=choice)
    assert [part.kind for part in parts] == ["tool_call"]
    assert end.reason == "stop"  # as OpenAI has it for a named tool


def test_thinking_in_the_text_is_split_off() -> None:
    parts, _, repair = repaired(
        [*text("<th", "ink>\nHm.\n</thi", "nk>\n\nHello"), finish()], Fault.REASONING_FIELD
    )
    assert [(part.kind, part.text) for part in parts] == [("reasoning", "Hm."), ("text", "Hello")]
    assert repair.counts == {"thinking-in-text": 1}


def test_text_ends_before_a_stop_string_and_nothing_follows() -> None:
    stop = {"stop": ["END", "\n\n"]}
    events = [*text("one E", "N", "D two"), *called("{}"), finish("length")]
    parts, end, _ = repaired(events, Fault.STOP_STRINGS, sampling=stop)
    assert [part.text for part in parts] == ["one "]
    assert (end.reason, end.matched_stop) == ("stop", "END")
    parts, end, _ = repaired([*text("one E", "N"), finish()], Fault.STOP_STRINGS, sampling=stop)
    assert ([part.text for part in parts], end.matched_stop) == (["one EN"], None)


def test_calls_have_ids_of_their_own() -> None:
    events = [*called("{}", call_id=""), *called("{}"), *called("{}"), finish("tool_calls")]
    parts, _, repair = repaired(events)
    ids = [part.id for part in parts]
    assert ids[1] == "c1"
    assert all(ids)
    assert len(set(ids)) == 3
    assert repair.counts["call-ids"] == 2


def test_one_call_where_one_was_asked_for() -> None:
    events = [*called("{}"), *called("{}", call_id="c2"), finish("tool_calls")]
    parts, end, _ = repaired(events, tool_choice=ToolChoice(parallel=False))
    assert ([part.id for part in parts], end.reason) == (["c1"], "tool_calls")


@pytest.mark.parametrize(
    ("pieces", "value", "told", "reason"),
    [
        (['{"path"', ': "a'], {"path": "a"}, "tool_calls", "length"),  # cut, and said to be whole
        (['{"path"', ': "a'], {"path": "a"}, "length", "length"),
        (['{"path": "a", ', "oops}"], {"path": "a", "__raw__": "oops}"}, "tool_calls", "tool_calls"),
        (["oops"], {"__raw__": "oops"}, "tool_calls", "tool_calls"),
        ([], {}, "stop", "tool_calls"),
        (['{"path": "a"}', "}"], {"path": "a"}, "tool_calls", "tool_calls"),
    ],
)
def test_arguments_are_always_an_object(pieces: list[str], value: Any, told: str, reason: str) -> None:
    parts, end, _ = repaired([*called(*pieces), finish(told)])
    assert (json.loads(parts[0].text), end.reason) == (value, reason)


def test_arguments_go_on_as_they_come() -> None:
    repair = ReplyRepair(profile(), request())
    start, *_ = called()
    repair([start])
    assert [one.text for one in repair([PartDelta(0, '{"path": "abc')]) if isinstance(one, PartDelta)] == [
        '{"path": "abc'
    ]


def test_a_reason_never_contradicts_the_body() -> None:
    assert repaired([*text("Hi"), finish("tool_calls")])[1].reason == "stop"
    assert repaired([*called("{}"), finish("stop")])[1].reason == "tool_calls"


def test_a_freeform_tools_call_is_its_input() -> None:
    parts, _, _ = repaired([*called('{"input": "*** Be', 'gin"}', name="patch"), finish("tool_calls")])
    assert [(part.kind, part.text) for part in parts] == [("custom_call", "*** Begin")]


def test_usage_that_was_not_told_is_estimated() -> None:
    _, end, _ = repaired([*text("a", "b", "c"), finish(usage=Usage())], Fault.STREAM_USAGE)
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (1, 3)
    assert repaired([*text("a"), finish(usage=Usage())])[1].usage == Usage()


def test_what_an_error_leaves_open_is_closed_before_it() -> None:
    repair = ReplyRepair(profile(), request())
    failed = Failed(RuntimeError("x"))
    out = repair([PartStart(0, "tool_call", "c1", "write_file"), PartDelta(0, '{"path": "a'), failed])
    check_form(out)
    assert out[-1] is failed
    assert json.loads("".join(one.text for one in out if isinstance(one, PartDelta))) == {"path": "a"}


TOUCHED: list[tuple[Profile, Api, dict[str, Any], bool]] = [
    (profile(), Api.CHAT, messages(USER, tools=[TOOL], stop="x"), False),
    (profile(Fault.LEAKED_END_TOKENS), Api.CHAT, messages(USER), True),
    (profile(Fault.LEAKED_END_TOKENS), Api.RESPONSES, {}, False),
    (profile(Fault.STOP_STRINGS), Api.CHAT, messages(USER), False),
    (profile(Fault.STOP_STRINGS), Api.CHAT, messages(USER, stop="x"), True),
    (profile(Fault.STREAM_USAGE), Api.CHAT, messages(USER, stream_options={"include_usage": True}), True),
    (profile(Fault.LEAKED_TOOL_MARKUP), Api.CHAT, messages(USER), False),
    (profile(Fault.LEAKED_TOOL_MARKUP), Api.MESSAGES, messages(USER, tools=[{"name": "f"}]), True),
    (profile(kind=Kind.EDGE_LLM), Api.CHAT, messages(USER, tools=[TOOL]), True),
    (profile(Fault.PARALLEL_CALLS), Api.CHAT, messages(USER, tools=[TOOL]), False),
    (profile(Fault.PARALLEL_CALLS), Api.CHAT, messages(USER, tools=[TOOL], parallel_tool_calls=False), True),
    (
        profile(Fault.PARALLEL_CALLS),
        Api.MESSAGES,
        messages(USER, tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True}),
        True,
    ),
    (profile(Fault.REQUIRED_CHOICE), Api.CHAT, messages(USER, tools=[TOOL], tool_choice="required"), True),
    (profile(Fault.REQUIRED_CHOICE), Api.CHAT, messages(USER, tools=[TOOL]), False),
    (
        profile(Fault.NAMED_CHOICE),
        Api.MESSAGES,
        messages(USER, tools=[TOOL], tool_choice={"type": "tool", "name": "f"}),
        True,
    ),
    (profile(), Api.CHAT, messages(USER, functions=[{"name": "f"}]), True),
]


@pytest.mark.parametrize(("upstream", "api", "body", "touched"), TOUCHED)
def test_a_reply_is_read_only_where_it_must_be(
    upstream: Profile, api: Api, body: dict[str, Any], touched: bool
) -> None:
    assert touches_reply(upstream, api, body) is touched
