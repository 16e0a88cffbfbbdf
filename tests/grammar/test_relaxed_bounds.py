"""Bounds of a schema under every dialect: the grammar holds them, or a warning names them; under strict what it cannot hold is refused."""

from __future__ import annotations

import pytest

from edgewise.chat.dialects import dialect, names
from edgewise.core.chat import ToolCall, ToolChoice, ToolDefinition
from edgewise.core.errors import InvalidRequestError
from edgewise.core.grammar import Constraint
from edgewise.grammar import GrammarCompiler
from tests.grammar.walking import END, Walker

BOUNDS = {"minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"}
JSON_DIALECTS = ("hermes", "llama3_json", "mistral", "openai")
UNHELD = {"lfm2", "llama4_pythonic", "pythonic", "olmo3"}


def put(*, strict: bool | None = None, **text: object) -> ToolDefinition:
    schema = {"type": "object", "properties": {"word": {"type": "string", **text}}, "required": ["word"]}
    return ToolDefinition("put", "puts", schema, strict=strict, path="tools[3].function")


@pytest.fixture(scope="module")
def walker() -> Walker:
    return Walker()


@pytest.fixture(scope="module")
def compiler(walker: Walker) -> GrammarCompiler:
    return walker.compiler


def warnings(compiler: GrammarCompiler, name: str, tool: ToolDefinition) -> str:
    rule = dialect(name).forced([tool], ToolChoice("required", ("put",), named=True))
    return "\n".join(compiler.compile(Constraint(rule)).warnings)


@pytest.mark.parametrize("name", names())
def test_a_bound_is_held_or_named(compiler: GrammarCompiler, name: str):
    told = warnings(compiler, name, put(**BOUNDS))
    if not told:
        return
    assert name not in JSON_DIALECTS, "JSON holds every bound"
    for keyword in BOUNDS:
        assert f"{keyword!r} is not enforced" in told and "tools[3].function.parameters" in told
    assert not warnings(compiler, name, put()), "nothing is named where nothing was asked"


@pytest.mark.parametrize("strict", [None, True])
@pytest.mark.parametrize("name", [name for name in names() if name not in UNHELD])
def test_what_is_not_named_is_held(walker: Walker, name: str, strict: bool | None):
    rule = dialect(name).forced([put(strict=strict, **BOUNDS)], ToolChoice("required", ("put",), named=True))
    for word, fits in {"abc": True, "a": False, "abcde": False, "ab1": False}.items():
        text = dialect(name).render([ToolCall("c", "put", {"word": word})])
        assert walker.walk(rule, text).endswith(END) is fits, word


def test_some_dialects_cannot_hold_them(compiler: GrammarCompiler):
    """So that the test above says something."""
    unheld = {name for name in names() if warnings(compiler, name, put(**BOUNDS))}
    assert unheld == UNHELD


@pytest.mark.parametrize("name", sorted(UNHELD))
def test_under_strict_it_is_an_error_that_names_tool_and_path(compiler: GrammarCompiler, name: str):
    with pytest.raises(InvalidRequestError) as caught:
        warnings(compiler, name, put(strict=True, **BOUNDS))
    assert "'minLength' cannot be enforced" in caught.value.message
    assert caught.value.param is not None and caught.value.param.startswith("tools[3].function.parameters")
    assert not warnings(compiler, name, put(strict=True))
