"""A freeform tool's format binds its input in every dialect, or a warning says that it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgewise.chat.bare_call_rules import bare_call_regions
from edgewise.chat.dialects import dialect, names
from edgewise.core.chat import CUSTOM_INPUT, CUSTOM_SCHEMA, ToolCall, ToolChoice, ToolDefinition
from edgewise.core.grammar import Constraint, FreeText
from edgewise.pipeline.chat_style import unbound_inputs
from tests.grammar.walking import END, Walker

LARK = """
start: "@@ NOTES" LF change+ "@@ END" LF?
change: ("+" | "-") /(.*)/ LF
%import common.LF
"""
GOOD = "@@ NOTES\n+print(\"a\\n\", 'ü')\n-\n@@ END"
BAD = "@@ NOTES\nno sign\n@@ END"
FORMATS: dict[str, Any] = {
    "lark": {"type": "grammar", "syntax": "lark", "definition": LARK},
    "regex": {"type": "grammar", "syntax": "regex", "definition": r"^@@ NOTES\n([+-].*\n)+@@ END\n?$"},
}


@pytest.fixture(scope="module")
def walker() -> Walker:
    return Walker()


def patch(syntax: str) -> ToolDefinition:
    return ToolDefinition(
        "patch", None, CUSTOM_SCHEMA, kind="custom", custom_format=FORMATS[syntax], path="tools[2]"
    )


def written(name: str, text: str) -> str:
    return dialect(name).render([ToolCall("c", "patch", {CUSTOM_INPUT: text})])


@pytest.mark.parametrize("syntax", FORMATS)
@pytest.mark.parametrize("name", names())
def test_the_input_matches_the_format(walker: Walker, name: str, syntax: str):
    rule = dialect(name).forced([patch(syntax)], ToolChoice("required", ("patch",), named=True))
    good = written(name, GOOD)
    assert walker.walk(rule, good).endswith(END), walker.walk(rule, good)
    told = walker.compiler.compile(Constraint(rule)).warnings
    if "input=" in good:
        assert all("tools[2]" in warning and "'pattern' is not enforced" in warning for warning in told)
        assert told
        return
    assert not told
    done = walker.walk(rule, written(name, BAD))
    assert not done.endswith(END) and "no sign" not in done, done


def test_bare_calls_are_bound_too(walker: Walker):
    free = FreeText(bare_call_regions([patch("lark")], ToolChoice()))
    for text, fits in ((GOOD, True), (BAD, False)):
        call = json.dumps({"name": "patch", "arguments": {CUSTOM_INPUT: text}}, ensure_ascii=False)
        assert walker.walk(free, call).endswith(END) is fits


def test_what_is_not_enforced_is_said():
    nested = {"type": "grammar", "syntax": "lark", "definition": 'start: "(" start ")" | "x"'}
    tool = ToolDefinition("calc", None, CUSTOM_SCHEMA, kind="custom", custom_format=nested, path="tools[2]")
    (warning,) = unbound_inputs([tool])
    assert warning.startswith("tools[2]: ") and "refers to itself" in warning
    assert not unbound_inputs([patch("lark"), patch("regex")])
