"""What holds of every dialect, over generated calls: nothing depends on the cuts, nothing is lost, what is written is read."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgewise.chat.dialects import ToolDialect
from edgewise.chat.dialects.table import DIALECTS
from edgewise.core.chat import ToolCall
from tests.chat.dialects.generated import CONTENT, FRAGMENTS, TOOLS, calls, chunked
from tests.chat.dialects.support import parse

pytestmark = pytest.mark.slow  # every dialect; the recorded cases are in the quick tier

EACH = pytest.mark.parametrize("dialect", DIALECTS, ids=[each.name for each in DIALECTS])
FEW = settings(
    max_examples=int(os.environ.get("DIALECT_EXAMPLES", "5")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def written(dialect: ToolDialect, data: st.DataObject) -> tuple[list[ToolCall], str, str]:
    """(calls, content, text) of a generated answer."""
    made = data.draw(calls(dialect))
    content = "" if dialect.forms[0].bare else data.draw(CONTENT).strip()
    return made, content, dialect.render(made, content)


@EACH
@FEW
@given(data=st.data())
def test_what_is_written_is_read_however_it_is_cut(dialect: ToolDialect, data: st.DataObject):
    made, content, text = written(dialect, data)
    whole = parse(dialect, TOOLS, [text])
    assert [(call.name, call.arguments) for call in whole.calls] == [
        (call.name, call.arguments) for call in made
    ]
    assert all(call.complete for call in whole.calls)
    assert whole.content == content
    assert len({call.id for call in whole.calls}) == len(made)
    assert parse(dialect, TOOLS, text) == whole
    assert parse(dialect, TOOLS, data.draw(chunked(text))) == whole


@EACH
@FEW
@given(data=st.data())
def test_an_answer_cut_off_gives_the_calls_before_and_valid_arguments(
    dialect: ToolDialect, data: st.DataObject
):
    made, _, text = written(dialect, data)
    text = text[: data.draw(st.integers(0, len(text)))]
    whole = parse(dialect, TOOLS, [text])
    complete = [call for call in whole.calls if call.complete]
    assert [(call.name, call.arguments) for call in complete] == [
        (call.name, call.arguments) for call in made[: len(complete)]
    ]
    for call in whole.calls:
        assert isinstance(call.arguments, dict)
    assert whole.calls[len(complete) + 1 :] == []
    assert parse(dialect, TOOLS, data.draw(chunked(text))) == whole


@EACH
@FEW
@given(data=st.data())
def test_anything_at_all_is_read_the_same_way_and_only_offered_tools_are_called(
    dialect: ToolDialect, data: st.DataObject
):
    made = dialect.render([ToolCall("", "look.up", {"q": "x"})])
    pieces = [
        *FRAGMENTS,
        *dialect.markers,
        made,
        made[: len(made) // 2],
        made[len(made) // 2 :],
        "look.up",
        "stop",
    ]
    text = data.draw(st.lists(st.sampled_from(pieces), max_size=10).map("".join))
    whole = parse(dialect, TOOLS, [text])
    assert {call.name for call in whole.calls} <= {tool.name for tool in TOOLS}
    for call in whole.calls:
        assert call.complete is not None
        assert isinstance(call.arguments, dict)
    assert parse(dialect, TOOLS, data.draw(chunked(text))) == whole
    if not whole.calls and not dialect.noise:
        assert whole.content == text


@EACH
@FEW
@given(text=CONTENT)
def test_text_without_calls_comes_back_as_it_was(dialect: ToolDialect, text: str):
    assert parse(dialect, TOOLS, [text]).content == text
    assert parse(dialect, [], text).content == text


@EACH
@FEW
@given(data=st.data())
def test_a_call_of_a_tool_that_is_not_offered_is_text(dialect: ToolDialect, data: st.DataObject):
    made, _, text = written(dialect, data)
    others = [tool for tool in TOOLS if tool.name != made[0].name]
    outcome = parse(dialect, others, text)
    assert made[0].name not in {call.name for call in outcome.calls}
    assert made[0].name in outcome.content
    if not dialect.noise and all(call.name == made[0].name for call in made):
        assert outcome.content == text
        assert outcome.calls == []


@EACH
def test_every_cut_of_two_calls_gives_the_same(dialect: ToolDialect):
    several = 1 if dialect.forms[0].single else 2
    text = dialect.render(
        [
            ToolCall("", "write_file", {"path": "a\"'\\ é", "mode": 7, "tags": ["x"]}),
            ToolCall("", "stop-all", {}),
        ][:several]
    )
    whole = parse(dialect, TOOLS, [text])
    assert len(whole.calls) == several
    for cut in range(1, len(text)):
        assert parse(dialect, TOOLS, [text[:cut], text[cut:]]) == whole, f"cut at {cut}"


@EACH
def test_arguments_stream_as_they_are_written(dialect: ToolDialect):
    text = dialect.render([ToolCall("", "look.up", {"q": "word " * 50})])
    parser = dialect.parser(TOOLS, new_id=lambda: "c")
    pieces = [event for character in text for event in parser.push(character)]
    longest = max(len(json.dumps(getattr(event, "text", ""))) for event in pieces)
    assert len(pieces) > 200
    assert longest < 60, "argument text was held back"
