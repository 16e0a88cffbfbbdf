"""An answer cut off inside what stands round calls: none of it is shown as text behind a call."""

from __future__ import annotations

import pytest

from edgewise.chat.bare_calls import BareCallReader
from edgewise.chat.dialects import CallEnd, CallStart, TextPiece, ToolDialect
from edgewise.chat.dialects.table import DIALECTS
from edgewise.core.chat import ToolCall, ToolDefinition
from tests.chat.dialects.support import Outcome, parse

TOOL = ToolDefinition("put", None, {"type": "object", "properties": {"a": {"type": "string"}}})
CALLS = [ToolCall("", "put", {"a": "b c"}), ToolCall("", "put", {"a": "z"})]


@pytest.mark.parametrize("dialect", DIALECTS, ids=[each.name for each in DIALECTS])
def test_framing_that_was_cut_is_no_text(dialect: ToolDialect):
    text = dialect.render(CALLS)
    for end in range(len(text) + 1):
        outcome = parse(dialect, [TOOL], [text[:end]])
        if outcome.calls and not _names_another_tool(text[:end]):
            assert outcome.content == "", text[:end]


def _names_another_tool(text: str) -> bool:
    """Whether the text ends in a whole call of a tool whose name is the beginning of the offered one: text, since it is not offered."""
    return text.endswith(("p", "pu"))


@pytest.mark.parametrize("dialect", DIALECTS, ids=[each.name for each in DIALECTS])
@pytest.mark.parametrize("behind", ["\nDone.", "\n< 3"])
def test_text_behind_calls_is_kept(dialect: ToolDialect, behind: str):
    text = dialect.render(CALLS[:1])
    assert parse(dialect, [TOOL], [text + behind]).content.strip() == behind.strip()


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "put", "arguments": {"a": "b"}}',
        '```json\n{"name": "put", "arguments": {"a": "b"}}\n```',
        '[{"name": "put", "arguments": {"a": "b"}}, {"name": "put", "arguments": {"a": "c"}}]',
        '{"name": "put", "arguments": {"a": "b"}}\n{"name": "put", "arguments": {"a": "c"}}',
    ],
)
def test_bare_calls_that_were_cut_leave_no_text(text: str):
    for end in range(len(text) + 1):
        reader = BareCallReader([TOOL])
        events = reader.push(text[:end]) + reader.finish()
        if any(isinstance(event, CallStart) for event in events):
            assert not any(isinstance(event, TextPiece) for event in events), text[:end]
            assert isinstance(events[-1], CallEnd)
            assert all(call.arguments for call in Outcome().add(events).calls if call.complete)
