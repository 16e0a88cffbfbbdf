"""Properties of shaping over generated requests, profiles and streams."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.core.chat import ChatEvent, ChatRequest, Finish, PartDelta, PartEnd, PartStart, ToolDefinition
from edgewise.core.requests import Usage
from edgewise.gateway.profile import Api, Fault, Kind, Profile
from edgewise.gateway.shaping import ReplyRepair, shape
from edgewise.gateway.shaping.arguments import Arguments, mended
from edgewise.protocols.reply import Reply
from tests.gateway.shaping_cases import OTHER, TOOL, call, result, system, turn
from tests.support.examples import examples

ids = st.sampled_from(["", "a", "b"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
objects = st.dictionaries(st.text(max_size=3), values, max_size=3)
arguments = objects | objects.map(json.dumps) | st.text(max_size=8)
turns = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, st.text(max_size=5)),
    st.builds(system, st.text(max_size=5), st.sampled_from(["system", "developer"])),
    st.builds(lambda *calls: turn(*calls), st.builds(call, arguments, ids), st.builds(call, arguments, ids)),
    st.builds(result, ids),
)
choices = st.sampled_from(
    ["auto", "none", "required", {"type": "function", "function": {"name": "write_file"}}]
)
constraints = st.sampled_from(
    [
        {},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}},
        {"grammar": 'root ::= "a"'},
        {"guided_json": {"type": "object"}},
    ]
)
requests = st.fixed_dictionaries(
    {"messages": st.lists(turns, min_size=1, max_size=6)},
    optional={
        "model": st.sampled_from(["own", "gpt-4o"]),
        "tools": st.sampled_from([[], [TOOL], [TOOL, OTHER]]),
        "tool_choice": choices,
        "parallel_tool_calls": st.booleans(),
        "max_tokens": st.integers(1, 10_000),
        "max_completion_tokens": st.integers(1, 10_000),
        "user": st.text(max_size=3),
        "functions": st.just([{"name": "f"}]),
        "function_call": st.sampled_from(["auto", {"name": "f"}]),
        "reasoning_effort": st.sampled_from(["none", "high"]),
        "enable_thinking": st.booleans(),
        "thinking": st.sampled_from([{"type": "enabled"}, {"type": "disabled"}]),
        "chat_template_kwargs": st.dictionaries(
            st.sampled_from(["enable_thinking", "thinking"]), st.booleans()
        ),
        "presence_penalty": st.sampled_from([0, 0.5]),
        "stream_options": st.just({"include_usage": True, "other": 1}),
    },
)
bodies = st.builds(lambda body, constraint: body | constraint, requests, constraints)
profiles = st.builds(
    Profile,
    st.sampled_from(Kind),
    faults=st.frozensets(st.sampled_from(Fault)),
    fields=st.sampled_from([{}, {Api.CHAT: frozenset(("messages", "model", "tools", "max_tokens"))}]),
)


@settings(max_examples=examples(150))
@given(bodies, profiles)
def test_shaping_is_idempotent_and_leaves_the_clients_body_alone(
    body: dict[str, Any], profile: Profile
) -> None:
    before = copy.deepcopy(body)
    shaped = shape(body, Api.CHAT, profile, model="own")
    assert body == before
    again = shape(shaped.body, Api.CHAT, profile, model="own")
    assert again.applied == ()
    assert again.body is shaped.body
    assert (shaped.body is body) == (shaped.applied == ())


@settings(max_examples=examples(100))
@given(bodies, profiles)
def test_a_body_whose_every_rule_was_applied_is_what_an_upstream_needs(
    body: dict[str, Any], profile: Profile
) -> None:
    shaped = shape(body, Api.CHAT, profile, model="own").body
    faults = profile.faults
    roles = [message["role"] for message in shaped["messages"]]
    assert shaped.get("model") == "own" or (profile.fields and "model" not in shaped)
    if Fault.DEVELOPER_ROLE in faults:
        assert "developer" not in roles
    if {Fault.LATE_SYSTEM, Fault.SEVERAL_SYSTEM} <= faults:
        assert not {"system", "developer"} & set(roles[1:])
    calls = [one["function"] for message in shaped["messages"] for one in message.get("tool_calls") or ()]
    if Fault.OBJECT_ARGUMENTS in faults:
        assert all(isinstance(one["arguments"], str) for one in calls)
    elif Fault.STRING_ARGUMENTS in faults:
        assert all(isinstance(one["arguments"], dict) for one in calls)
    if profile.fields:
        assert shaped.keys() <= profile.fields[Api.CHAT]


@settings(max_examples=examples(150))
@given(st.text(max_size=30) | objects.map(json.dumps), st.lists(st.integers(0, 30), max_size=4))
def test_arguments_are_an_object_however_they_come(text: str, cuts: list[int]) -> None:
    assert isinstance(json.loads(mended(text)), dict)
    arguments, places = Arguments(), sorted({0, *cuts, len(text)})
    pieces = [text[a:b] for a, b in pairwise(places)]
    assert "".join(map(arguments.push, pieces)) + arguments.finish() == mended(text)


@settings(max_examples=examples(100))
@given(objects)
def test_an_objects_json_goes_through_unchanged(value: dict[str, Any]) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        assert mended(text) == text


said = st.text(st.sampled_from('<|im_end>tol_cf{}"nae: \n/s['), max_size=30)
parts = st.lists(
    st.tuples(st.sampled_from(["text", "reasoning", "tool_call"]), st.lists(said, max_size=3)), max_size=4
)


@settings(max_examples=examples(150))
@given(parts, st.sampled_from(["stop", "length", "tool_calls"]), st.frozensets(st.sampled_from(Fault)))
def test_no_malformed_call_leaves_whatever_an_upstream_writes(
    written: list[tuple[Any, list[str]]], reason: str, faults: frozenset[Fault]
) -> None:
    tools = (ToolDefinition("f", None, None),)
    repair = ReplyRepair(Profile(Kind.OPENAI, faults=faults), ChatRequest((), tools=tools))
    events: list[ChatEvent] = []
    for kind, pieces in written:
        events += [PartStart(0, kind, "", "f" if kind == "tool_call" else "")]
        events += [*(PartDelta(0, piece) for piece in pieces), PartEnd(0)]
    out = [one for event in [*events, Finish(0, reason, Usage())] for one in repair([event])]
    calls, texts = [], list[str]()
    for event in out:
        if isinstance(event, PartStart):
            texts = []
            if event.kind == "tool_call":
                calls.append((event.id, texts))
        elif isinstance(event, PartDelta):
            texts.append(event.text)
    assert all(isinstance(json.loads("".join(texts)), dict) for _, texts in calls)
    assert len({call_id for call_id, _ in calls}) == len(calls)
    end = out[-1]
    assert isinstance(end, Finish)
    assert calls or end.reason != "tool_calls"
    assert not calls or end.reason != "stop"


notes = st.lists(
    st.sampled_from(
        [
            *("Hi ", "<think>", "</think>", "<|im_end|>", "STOP", "\n", "<", "[", "```json\n"),
            '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
            "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
            '{"name": "f", "arguments": {"a": [1, "x"]}}',
        ]
    ),
    max_size=5,
)
CURED = (Fault.LEAKED_END_TOKENS, Fault.LEAKED_TOOL_MARKUP, Fault.STOP_STRINGS, Fault.REASONING_FIELD)


@settings(max_examples=examples(150))
@given(notes, st.lists(st.integers(0, 120), max_size=6), st.frozensets(st.sampled_from(CURED)))
def test_a_repair_is_the_same_however_the_text_was_cut(
    written: list[str], cuts: list[int], faults: frozenset[Fault]
) -> None:
    text = "".join(written)

    def repaired(pieces: list[str]) -> list[tuple[str, str]]:
        chat = ChatRequest((), tools=(ToolDefinition("f", None, None),), sampling={"stop": ["STOP"]})
        deltas = [PartDelta(0, piece) for piece in pieces]
        events: list[ChatEvent] = [PartStart(0, "text", "t"), *deltas, PartEnd(0), Finish(0, "stop", Usage())]
        reply = Reply.empty(1)
        repair = ReplyRepair(Profile(Kind.OPENAI, faults=faults), chat)
        for event in events:
            reply.add(repair([event]))
        choice = reply.choices[0]
        return [*((part.kind, part.text) for part in choice.parts), ("finish", str(choice.finish_reason))]

    places = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    assert repaired([text[a:b] for a, b in pairwise(places)]) == repaired([text])
