"""Bounds of a schema under every dialect: the grammar holds them, or a warning names them; under strict what it cannot hold is refused."""

from __future__ import annotations

import pytest

from edgewise.chat.dialects import dialect, names
from edgewise.core.chat import ToolCall, ToolChoice, ToolDefinition
from edgewise.core.errors import InvalidRequestError
from edgewise.core.grammar import Constraint
from edgewise.grammar import GrammarCompiler
from tests.grammar.walking import END, Walker, allows

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


RAW = ("qwen3_coder", "glm45", "gemma4", "minimax_m3")
TOO_MUCH = r"^\S{1000}(.|x){1,2000}$"


def noting(path: str, *, strict: bool | None = None, **texts: object) -> ToolDefinition:
    schema = {"type": "object", "properties": texts, "required": [*texts]}
    name = f"note{path}"
    return ToolDefinition(name, None, schema, strict=strict, path=f"tools[{path}]", local_name=name)


def called(name: str, tool: ToolDefinition, **values: str) -> str:
    return dialect(name).render([ToolCall("c", tool.name, values)])


@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize("bound", [{"maxLength": 60}, {"maxLength": 2000}, {"minLength": 2000}])
def test_a_bound_that_is_too_much_to_count_is_named(walker: Walker, name: str, bound: dict[str, int]):
    tools = [noting(str(i), a={"type": "string", **bound}, b={"type": "string", **bound}) for i in range(9)]
    rule = dialect(name).forced(tools, ToolChoice("required"))
    told = walker.compiler.compile(Constraint(rule)).warnings
    assert any("tools[8]" in warning and repr(next(iter(bound))) in warning for warning in told)
    assert walker.walk(rule, called(name, tools[4], a="plain", b="x")).endswith(END)


@pytest.mark.parametrize("name", RAW)
def test_a_pattern_that_is_too_complex_leaves_the_other_tools_theirs(walker: Walker, name: str):
    tools = [
        noting(str(i), a={"type": "string", "pattern": TOO_MUCH if i == 4 else "^[a-z]+$"}) for i in range(9)
    ]
    rule = dialect(name).forced(tools, ToolChoice("required"))
    (told,) = walker.compiler.compile(Constraint(rule)).warnings
    assert "tools[4]" in told and "'pattern' is not enforced" in told
    assert walker.walk(rule, called(name, tools[4], a="any 1")).endswith(END)
    assert walker.walk(rule, called(name, tools[3], a="any")).endswith(END)
    assert not walker.walk(rule, called(name, tools[3], a="any 1")).endswith(END)


@pytest.mark.parametrize("name", RAW)
def test_under_strict_a_pattern_that_is_too_complex_is_an_error(compiler: GrammarCompiler, name: str):
    tools = [noting("0"), noting("1", strict=True, a={"type": "string", "pattern": TOO_MUCH})]
    with pytest.raises(InvalidRequestError) as caught:
        compiler.compile(Constraint(dialect(name).forced(tools, ToolChoice("required"))))
    assert "tools[1]" in str(caught.value) and caught.value.param is not None


@pytest.mark.parametrize("jumps", [True, False])
def test_a_grammar_that_grows_too_complex_on_the_way_asks_less_from_there(
    walker: Walker, jumps: bool, caplog: pytest.LogCaptureFixture
):
    """The two texts are within what can be used; what the second has to match is looked at when the first has ended."""
    bound = {"type": "string", "pattern": r"^[\s\S]{0,60}$"}
    tool = noting("0", a=bound, b=bound)
    rule = dialect("qwen3_coder").forced([tool], ToolChoice("required"))
    constraint = walker.make(rule)
    assert not caplog.messages
    ids = walker.tokenizer.encode(called("qwen3_coder", tool, a="one", b="two"), parse_special=True)
    for token in ids:
        twin = constraint.fork()
        assert allows(constraint, token) and allows(twin, token)
        assert not jumps or constraint.forced()[:1] in ([], [token])
        ended = constraint.accept(token)
    assert ended or all(allows(constraint, end) for end in walker.tokenizer.eos_token_ids)
    assert any("no longer bound" in message for message in caplog.messages)
