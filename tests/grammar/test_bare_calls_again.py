"""One bare call after another: each is bound to an offered name and its schema, as the first is."""

from __future__ import annotations

import pytest

from edgewise.chat.bare_call_rules import bare_call_regions
from edgewise.core.chat import ToolChoice, ToolDefinition
from edgewise.core.grammar import FreeText
from tests.grammar.walking import Walker

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}  # fmt: skip
TOOLS = [ToolDefinition(name, "", SCHEMA) for name in ("add", "sub")]
FIRST = '{"name": "add", "arguments": {"n": 1}}'
SECOND = '{"name": "sub", "arguments": {"n": 2}}'


@pytest.fixture(scope="module")
def walker() -> Walker:
    return Walker()


def body(*, parallel: bool = True) -> FreeText:
    choice = ToolChoice(parallel=parallel)
    return FreeText(bare_call_regions(TOOLS, choice), max_regions=None if parallel else 1)


@pytest.mark.parametrize("between", ["", "\n", "\n\n", ", ", ";\n"])
def test_a_second_call_is_bound(walker: Walker, between: str):
    whole = FIRST + between + SECOND
    assert walker.walk(body(), whole).startswith(whole)
    for wrong in ('{"name": "mul"', '{"name": "sub", "arguments": {"n": "x"'):
        taken = walker.walk(body(), FIRST + between + wrong)
        assert taken != FIRST + between + wrong, "a name not offered, or an argument of another type"


def test_a_third_one_too(walker: Walker):
    whole = f"{FIRST}\n{SECOND}\n{FIRST}"
    assert walker.walk(body(), whole).startswith(whole)
    wrong = f'{FIRST}\n{SECOND}\n{{"name": "mul"'
    assert walker.walk(body(), wrong) != wrong


def test_text_in_between_makes_it_text(walker: Walker):
    for text in (FIRST + "\nDone.", FIRST + '\nThen {"name": "mul"} stands for nothing.'):
        assert walker.walk(body(), text).startswith(text)
