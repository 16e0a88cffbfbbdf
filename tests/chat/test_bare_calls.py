"""Calls written as plain JSON: read when the answer opens so, never otherwise, however the text is cut."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.chat.bare_calls import BareCallReader, bare_call_regions
from edgewise.chat.dialects import ArgumentPiece, CallEnd, CallStart, TextPiece, ToolEvent
from edgewise.core.chat import ToolChoice, ToolDefinition
from edgewise.grammar.prefixes import strip
from tests.support.examples import examples

TOOLS = [
    ToolDefinition("put", None, {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolDefinition("putter", None, {"type": "object"}),
    ToolDefinition("patch", None, None, kind="custom"),
]
Calls = list[tuple[str, Any, bool]]


def read(pieces: list[str], *, parallel: bool = True) -> tuple[Calls, str]:
    """(name, arguments, complete) of each call, and the text."""
    numbers = itertools.count()
    reader = BareCallReader(TOOLS, parallel=parallel, new_id=lambda: f"id{next(numbers)}")
    events: list[ToolEvent] = []
    for piece in pieces:
        events += reader.push(piece)
    events += reader.finish()
    names: list[str] = []
    arguments: list[str] = []
    complete: list[bool] = []
    text = ""
    for event in events:
        match event:
            case CallStart(_, name):
                names.append(name)
                arguments.append("")
            case ArgumentPiece(piece):
                arguments[-1] += piece
            case CallEnd(whole):
                complete.append(whole)
            case TextPiece(piece):
                text += piece
    assert reader.calls_seen == len(names)
    return [
        (name, json.loads(each), whole) for name, each, whole in zip(names, arguments, complete, strict=True)
    ], text


ONE: Calls = [("put", {"path": "a.py"}, True)]
A = '{"path": "a.py"}'


@pytest.mark.parametrize(
    ("text", "calls", "rest"),
    [
        (f'{{"name": "put", "arguments": {A}}}', ONE, ""),
        (f' \n{{"name":"put","parameters":{A}}}\n', ONE, ""),
        (f'{{"name": "put", "input": {A}}}', ONE, ""),
        (f'{{"arguments": {A}, "name": "put"}}', ONE, ""),
        (f'{{"function": "put", "args": {A}}}', ONE, ""),
        (f'{{"tool": "put", "tool_input": {A}}}', ONE, ""),
        (f'{{"type": "function", "function": {{"name": "put", "arguments": {A}}}}}', ONE, ""),
        (f'{{"id": "c7", "type": "function", "name": "put", "arguments": {A}}}', ONE, ""),
        (f'```json\n{{"name": "put", "arguments": {A}}}\n```', ONE, ""),
        (f'```\n{{"name": "put", "arguments": {A}}}\n```\n\nDone.', ONE, "\n\nDone."),
        (f'```JSON\n[{{"name": "put", "arguments": {A}}}]\n```', ONE, ""),
        (f'[{{"name": "put", "arguments": {A}}}, {{"name": "put", "arguments": {A}}}]', ONE * 2, ""),
        (f'{{"name": "put", "arguments": {A}}}\n{{"name": "put", "arguments": {A}}}', ONE * 2, ""),
        (
            f'```json\n{{"name": "put", "arguments": {A}}}\n{{"name": "put", "arguments": {A}}}\n```',
            ONE * 2,
            "",
        ),
        ('{"name": "put", "arguments": "{\\"path\\": \\"a.py\\"}"}', ONE, ""),
        ('{"name": "putter", "arguments": null}', [("putter", {}, True)], ""),
        ('{"name": "putter", "arguments": {}}', [("putter", {}, True)], ""),
        ('{"name": "patch", "input": "*** Begin\\n"}', [("patch", {"input": "*** Begin\n"}, True)], ""),
        (f'{{"name": "put", "arguments": {A}', ONE, ""),
        ('{"name": "put", "arguments": {"path": "a.p', [("put", {"path": "a.p"}, False)], ""),
        ('{"name": "put", "arguments": {"path": "a", "te', [("put", {"path": "a"}, False)], ""),
    ],
)
def test_calls_are_found(text: str, calls: Calls, rest: str) -> None:
    assert read([text]) == (calls, rest)
    assert read(list(text)) == (calls, rest)


@pytest.mark.parametrize(
    "text",
    [
        "Say hi",
        '{"name": "Bob", "age": 5}',
        '{"name": "putt", "arguments": {}}',
        '{"name": "put"}',
        '{"result": {"name": "put", "arguments": {}}}',
        '{"name": "put", "description": "x", "arguments": {}}',
        '{"name": "put", "arguments": [1]}',
        '{"name": "put", "arguments": "words"}',
        '{"arguments": {"a": 1}, "other": 2}',
        "[1, 2]",
        "[]",
        "{}",
        "```python\nprint(1)\n```",
        "```json\n{}\n```",
        '`{"name": "put", "arguments": {}}`',
        'Sure: {"name": "put", "arguments": {}}',
        '{"name": "put", ',
        "``",
        " \n",
    ],
)
def test_anything_else_comes_back_verbatim(text: str) -> None:
    assert read([text]) == ([], text)
    assert read(list(text)) == ([], text)


def test_text_is_held_only_while_it_can_be_a_call() -> None:
    reader = BareCallReader(TOOLS)
    assert reader.push('{"name": "pu') == []
    assert reader.push("mp") == [TextPiece('{"name": "pump')]
    assert reader.settled
    assert reader.push("x") == [TextPiece("x")]


def test_arguments_stream_as_they_are_made() -> None:
    reader = BareCallReader(TOOLS, new_id=lambda: "id")
    assert reader.push('{"name": "put", "arguments": {"path": "a') == [
        CallStart("id", "put"),
        ArgumentPiece('{"path": "a'),
    ]
    assert reader.push("b") == [ArgumentPiece("b")]


def test_one_call_where_parallel_calls_are_refused() -> None:
    second = f'\n{{"name": "put", "arguments": {A}}}'
    assert read([f'{{"name": "put", "arguments": {A}}}' + second], parallel=False) == (ONE, second)


PIECES = [
    "{",
    "}",
    "[",
    "]",
    ",",
    '"',
    "name",
    '"name": ',
    '"put"',
    '"arguments": ',
    A,
    "```",
    "json",
    "\n",
    " ",
    ":",
]


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=2), max_size=10))
def test_any_cut_gives_the_same(pieces: list[str]) -> None:
    whole = read(["".join(pieces)])
    assert read(pieces) == whole
    assert read(list("".join(pieces))) == whole


def test_every_region_begins_with_its_trigger() -> None:
    regions = bare_call_regions(TOOLS, ToolChoice())
    triggers = {text for region in regions for text in (region.trigger, *region.also)}
    assert len(triggers) == sum(1 + len(region.also) for region in regions)
    for region in regions:
        assert region.at_start
        assert strip(region.rule, region.trigger) is not None
    assert {'{"name"', '```json\n{"name"', '```\n{\n  "name"', '[{"name"'} <= triggers


def test_no_regions_where_nothing_or_something_must_be_called() -> None:
    assert bare_call_regions(TOOLS, ToolChoice("none")) == ()
    assert bare_call_regions(TOOLS, ToolChoice("required")) == ()
    assert bare_call_regions([], ToolChoice()) == ()
