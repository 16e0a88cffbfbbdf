"""A freeform tool's format binds its input in every dialect, or a warning says that it does not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from edgewise.chat.bare_call_rules import bare_call_regions
from edgewise.chat.dialects import dialect, names
from edgewise.core.chat import CUSTOM_INPUT, CUSTOM_SCHEMA, ToolCall, ToolChoice, ToolDefinition
from edgewise.core.grammar import Constraint, FreeText
from edgewise.pipeline.chat_style import unbound_inputs
from tests.grammar.walking import END, Walker

EDITS = """
start: "*** Begin Patch" LF file+ "*** End Patch" LF?
file: added | deleted | updated
added: "*** Add File: " path LF ("+" rest LF)+
deleted: "*** Delete File: " path LF
updated: "*** Update File: " path LF ("*** Move to: " path LF)? part?
part: (place | line)+ ("*** End of File" LF)?
place: ("@@" | "@@ " path) LF
line: ("+" | "-" | " ") rest LF -> changed
path: /(.+)/
rest: /(.*)/
%import common.LF
"""  # the texts that Codex's apply_patch takes
MOVED = (
    '*** Begin Patch\n*** Add File: a b/ü.py\n+print("\\n")\n+</parameter> </tool_call> <|end|>\n+\n*** Delete File: old\n'
    "*** Update File: x\n*** Move to: y\n@@ def f():\n-  a\n+  b\n   c\n*** End of File\n*** End Patch"
)
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


@pytest.mark.parametrize("name", [name for name in names() if "input=" not in written(name, "x")])
def test_patches_of_files(walker: Walker, name: str):
    tool = replace(patch("lark"), custom_format={"type": "grammar", "syntax": "lark", "definition": EDITS})
    rule = dialect(name).forced([tool], ToolChoice("required", ("patch",), named=True))
    assert not walker.compiler.compile(Constraint(rule)).warnings
    assert walker.walk(rule, written(name, MOVED)).endswith(END)
    lines = MOVED.split("\n")
    for bad in (
        lines[:-1],
        lines[1:],
        [*lines[:2], "no sign", *lines[2:]],
        ["*** Begin Patch", "*** End Patch"],
    ):
        assert not walker.walk(rule, written(name, "\n".join(bad))).endswith(END), bad


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


@pytest.mark.parametrize(
    ("syntax", "definition", "good", "bad"),
    [
        ("regex", r"^(add|drop) \d+$", ("add 1", "drop 20"), ("1", "add", "mad 1", "add 1x")),
        ("regex", r"^on$|^off$", ("on", "off"), ("o", "no", "offer")),
        ("regex", r"(?i)on|off", ("ON", "oFF"), ("o",)),
        ("regex", r"cost \$\d+", ("cost $1",), ("cost 1", "cost $")),
        ("regex", r"[|$^]\|x", ("||x", "$|x"), ("|x",)),
        ("lark", 'start: ("add" | "drop") " " /[0-9]+/ | "off"i', ("add 1", "OFF"), ("add", "off 1")),
    ],
)
@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "glm45", "gemma4", "minimax_m3", "deepseek_v32"])
def test_choices_and_anchors(
    walker: Walker, name: str, syntax: str, definition: str, good: tuple[str, ...], bad: tuple[str, ...]
):
    form = {"type": "grammar", "syntax": syntax, "definition": definition}
    tool = ToolDefinition("patch", None, CUSTOM_SCHEMA, kind="custom", custom_format=form, path="tools[2]")
    rule = dialect(name).forced([tool], ToolChoice("required", ("patch",), named=True))
    assert not walker.compiler.compile(Constraint(rule)).warnings
    for text in good:
        assert walker.walk(rule, written(name, text)).endswith(END), text
    for text in bad:
        assert not walker.walk(rule, written(name, text)).endswith(END), text


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
