"""Grammars that nothing satisfies or that never end are refused before they run; of a schema the reference at fault alone is left out."""

from __future__ import annotations

from typing import Any

import pytest

from edgewise.core.errors import InvalidRequestError
from edgewise.core.grammar import Constraint, Json, Lark, Regex, Sequence
from edgewise.grammar import GrammarCompiler
from edgewise.grammar.limits import GrammarLimits
from tests.grammar.walking import Walker
from tests.support.byte_tokenizer import ByteTokenizer

LOOP = {"$ref": "#/$defs/x"}


@pytest.fixture(scope="module")
def walker() -> Walker:
    return Walker()


def root(**more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": LOOP}, "required": ["a"], "$defs": {"x": LOOP}, **more}


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        (root(), "s.$defs.x"),
        ({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}, "required": ["a"]}, "s.properties.a"),
        (root(**{"$defs": {"x": {"allOf": [{"$ref": "#/$defs/y"}]}, "y": LOOP}}), "s.$defs.x.allOf[0]"),
        (root(**{"$defs": {"x": {"anyOf": [LOOP, LOOP]}}}), "s.$defs.x.anyOf"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "s.properties.a"),
    ],
)  # fmt: skip
def test_a_reference_that_leads_back_to_itself_is_left_out_or_refused(walker, schema, where):
    compiled = walker.compiler.compile(Constraint(Json(schema, "s")))
    assert any(where in warning and "$ref" in warning for warning in compiled.warnings)
    assert compiled.make().mask() is not None
    with pytest.raises(InvalidRequestError, match="leads back to itself") as caught:
        walker.compiler.compile(Constraint(Json(schema, "s", strict=True)))
    assert str(caught.value.param).startswith("s.")


@pytest.mark.parametrize(
    "schema",
    [
        root(required=[], **{"$defs": {"x": {"type": "object", "properties": {"next": LOOP}}}}),
        root(**{"$defs": {"x": {"anyOf": [{"type": "null"}, LOOP]}}}),
        root(**{"$defs": {"x": {"type": "array", "items": LOOP}}}),
        {"$ref": "#/$defs/0", "$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(90)} | {"90": True}},
    ],
)  # fmt: skip
def test_recursion_that_can_end_is_kept(walker, schema):
    assert not walker.compiler.compile(Constraint(Json(schema, "s", strict=True))).warnings


def test_arguments_stay_an_object_where_nothing_else_of_a_schema_can_be_kept(walker):
    schema = {"type": "object", "oneOf": [{"type": "string"}, {"type": "null"}]}
    compiled = walker.compiler.compile(Constraint(Json(schema, "s")))
    assert compiled.warnings
    constraint = compiled.make()
    assert constraint.forced() == [ord("{")] or not constraint.mask()[ord('"') // 32] >> (ord('"') % 32) & 1


def test_a_grammar_nothing_satisfies_is_refused_in_plain_words(walker):
    with pytest.raises(InvalidRequestError, match="no text satisfies it"):
        walker.compiler.compile(Constraint(Lark("start: start")))


def test_a_pattern_that_ends_in_a_backslash_is_refused(walker):
    for pattern in ("\\", "a\\\\\\"):
        with pytest.raises(InvalidRequestError, match="backslash"):
            walker.compiler.compile(Constraint(Regex(pattern)))
    walker.compiler.compile(Constraint(Regex("a\\\\")))


def test_a_grammar_that_fails_on_the_way_is_its_requests_fault():
    compiler = GrammarCompiler(ByteTokenizer(), limits=GrammarLimits(step_fuel=2_000))
    heavy = Regex("(.*a.{40}b){8}(x|y.*z.{30}){9}")
    constraint = compiler.compile(Constraint(Sequence((Lark('start: "ok"'), heavy)))).make()
    with pytest.raises(InvalidRequestError, match="the grammar failed"):
        for token in b"ok" + b"ab" * 200:
            constraint.mask()
            constraint.accept(token)
