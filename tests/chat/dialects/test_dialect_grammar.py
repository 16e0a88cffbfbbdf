"""The grammar of every dialect: it allows what a model writes, and whatever it allows is read as complete calls of offered tools."""

from __future__ import annotations

import os
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from edgewise.chat.dialects import ToolDialect
from edgewise.chat.dialects.form import MARKER
from edgewise.chat.dialects.table import DIALECTS
from edgewise.core.chat import ToolCall, ToolChoice
from edgewise.core.grammar import Constraint, OneOf, Repeat, Rule, Sequence
from edgewise.grammar import CompiledConstraint, GrammarCompiler
from tests.chat.dialects.generated import FRAGMENTS, TOOLS, calls
from tests.chat.dialects.rule_texts import texts_of
from tests.chat.dialects.support import Call, parse, tool
from tests.support.byte_tokenizer import ByteTokenizer

pytestmark = pytest.mark.slow  # every dialect; the recorded cases are in the quick tier

EACH = pytest.mark.parametrize("dialect", DIALECTS, ids=[each.name for each in DIALECTS])
FEW = settings(
    max_examples=int(os.environ.get("DIALECT_EXAMPLES", "5")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
MODES = {
    "forced": ToolChoice("required"),
    "auto": ToolChoice("auto"),
    "none": ToolChoice("none"),
    "one": ToolChoice("auto", parallel=False),
}


@cache
def tokenizer(name: str, *, spelled: bool) -> ByteTokenizer:
    """Bytes, and the dialect's markers as control tokens or, `spelled`, as plain text."""
    dialect = next(each for each in DIALECTS if each.name == name)
    markers = [] if spelled else [m for m in dialect.markers if MARKER.fullmatch(m) or "]<]" in m]
    return ByteTokenizer(control_tokens=("<s>", "</s>", *(m for m in markers if m not in ("<s>", "</s>"))))


@cache
def compiled(name: str, mode: str, *, spelled: bool) -> CompiledConstraint:
    dialect = next(each for each in DIALECTS if each.name == name)
    choice = MODES[mode]
    body = dialect.forced(TOOLS, choice) if mode == "forced" else dialect.free_text(TOOLS, choice)
    return GrammarCompiler(tokenizer(name, spelled=spelled)).compile(Constraint(body))


def allows(dialect: ToolDialect, mode: str, text: str, *, spelled: bool) -> tuple[bool, str]:
    """Whether a grammar lets an answer be `text`; and how far it gets."""
    tokens = tokenizer(dialect.name, spelled=spelled)
    state = compiled(dialect.name, mode, spelled=spelled).make()
    ids = [*tokens.encode(text, parse_special=True), tokens.special_tokens["</s>"]]
    for position, token in enumerate(ids):
        mask = state.mask()
        if mask is not None and not int(mask[token // 32]) >> (token % 32) & 1:
            return False, tokens.decode(ids[:position], skip_special_tokens=False)
        if state.accept(token):
            return position >= len(ids) - 2, "stopped"
    return True, text


def ordered(call: ToolCall) -> ToolCall:
    """The call with its arguments in the schema's order, which grammars fix."""
    assert isinstance(call.arguments, dict)
    properties = next(tool.parameters or {} for tool in TOOLS if tool.name == call.name)["properties"]
    given = {key: call.arguments[key] for key in properties if key in call.arguments}
    if "owner" in given:
        given["owner"] = {key: given["owner"][key] for key in ("name", "id") if key in given["owner"]}
    return ToolCall("", call.name, given)


FULL = {
    "path": "a\nb",
    "text": 'x "y" é',
    "mode": 3,
    "ratio": 1.5,
    "append": True,
    "tags": ["a", "b"],
    "owner": {"name": "n", "id": 3},
    "note": "null and void",
    "limit": 7,
}


@EACH
@pytest.mark.parametrize("spelled", [False, True], ids=["tokens", "spelled"])
def test_each_kind_of_value_is_allowed(dialect: ToolDialect, spelled: bool):
    for values in (FULL, {"path": ""}, {"path": "", "tags": []}, {"path": "p", "note": "n", "limit": 7}):
        text = dialect.render([ToolCall("", "write_file", values)])
        for mode in ("forced", "auto"):
            allowed, upto = allows(dialect, mode, text, spelled=spelled)
            assert allowed, f"{mode}: stops after {upto!r}"


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("spelled", [False, True], ids=["tokens", "spelled"])
@FEW
@given(data=st.data())
def test_what_a_model_writes_is_allowed(dialect: ToolDialect, spelled: bool, data: st.DataObject):
    # Where nothing marks the end of several calls, a spelled trigger in a later one cannot be told from free text; a control token can.
    form = dialect.forms[0]
    marked = spelled and not form.bare and (bool(form.close) or not form.open)
    made = data.draw(calls(dialect, with_markers=marked).filter(lambda each: "\x7f" not in repr(each)))
    text = dialect.render([ordered(call) for call in made])
    for mode in ("forced", "auto"):
        allowed, upto = allows(dialect, mode, text, spelled=spelled)
        assert allowed, f"{mode}: stops after {upto!r}"


@pytest.mark.slow
@EACH
@FEW
@given(data=st.data())
def test_whatever_the_grammar_forces_is_read_as_complete_calls(dialect: ToolDialect, data: st.DataObject):
    fragments = (*FRAGMENTS, *(marker for marker in dialect.markers if len(marker) < 40))
    text = data.draw(texts_of(dialect.forced(TOOLS, MODES["forced"]), fragments))
    outcome = parse(dialect, TOOLS, [text])
    assert outcome.calls, text
    for call in outcome.calls:
        assert call.complete, text
        assert_valid(call)
    assert outcome.content == "", text


def assert_valid(call: Call) -> None:
    schema = next(tool.parameters or {} for tool in TOOLS if tool.name == call.name)
    errors = [*Draft202012Validator(schema).iter_errors(call.arguments)]
    assert errors == [], f"{call.name}({call.text})"


@EACH
def test_one_call_at_most_where_parallel_calls_are_refused(dialect: ToolDialect):
    two = dialect.render([ToolCall("", "stop-all", {}), ToolCall("", "look.up", {"q": "x"})])
    one = dialect.render([ToolCall("", "stop-all", {})])
    assert allows(dialect, "one", one, spelled=False)[0]
    assert not allows(dialect, "one", two, spelled=False)[0]


@EACH
def test_no_call_is_allowed_where_tools_are_not_to_be_used(dialect: ToolDialect):
    text = dialect.render([ToolCall("", "stop-all", {})])
    assert allows(dialect, "none", text, spelled=False)[0] == dialect.forms[0].bare
    assert allows(dialect, "none", "Just text, with {braces} and [brackets].", spelled=False)[0]


@EACH
def test_text_is_free_beside_calls(dialect: ToolDialect):
    assert allows(dialect, "auto", "Just text, with < and {braces}.", spelled=False)[0]


@EACH
def test_a_name_that_is_not_offered_cannot_be_forced(dialect: ToolDialect):
    text = dialect.render([ToolCall("", "stop-all", {})]).replace("stop-all", "stop-any")
    allowed, upto = allows(dialect, "forced", text, spelled=False)
    assert not allowed
    assert upto.endswith(("stop-a", "stop-")), upto


@EACH
def test_a_tool_of_many_optional_parameters_has_a_small_grammar(dialect: ToolDialect):
    big = tool("big", {f"p{n}": {"type": ["string", "integer", "boolean", "null"][n % 4]} for n in range(60)})
    rule = dialect.forced([big], MODES["forced"])
    assert depth(rule) < 40
    assert len(repr(rule)) < 400_000
    compiler = GrammarCompiler(tokenizer(dialect.name, spelled=False))
    compiler.compile(Constraint(rule))


def depth(rule: Rule) -> int:
    match rule:
        case Sequence(rules) | OneOf(rules):
            return 1 + max(map(depth, rules))
        case Repeat(each):
            return 1 + depth(each)
    return 1
