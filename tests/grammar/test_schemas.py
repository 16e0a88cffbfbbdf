"""Schemas are enforced, and what cannot be is relaxed keyword by keyword, or refused."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from edgewise.core.errors import InvalidRequestError
from edgewise.core.grammar import Constraint, FreeText, Json, OneOf, Sequence, Text, Triggered
from edgewise.grammar import GrammarCompiler
from tests.grammar.schemas import SCHEMAS, validate
from tests.grammar.walking import END, Walker

TOOL = "tools[3].function.parameters"
PATTERN = {"type": "string", "pattern": "^(?!x).+@.+$"}


@pytest.fixture(scope="module")
def walker() -> Walker:
    return Walker()


@pytest.fixture(scope="module")
def warnings(walker: Walker) -> Callable[..., tuple[str, ...]]:
    def of(schema: Any, **options: Any) -> tuple[str, ...]:
        return walker.compiler.compile(Constraint(Json(schema, TOOL, **options))).warnings

    return of


def inside(schema: Any, name: str = "a") -> dict[str, Any]:
    return {"type": "object", "properties": {name: schema, "b": {"type": "integer"}}, "required": [name, "b"]}


def test_the_collection_is_large_enough():
    assert len(SCHEMAS) >= 60
    assert sum(name.startswith("mcp_") for name in SCHEMAS) >= 20
    text = json.dumps(SCHEMAS)
    assert all(word in text for word in ('"$ref"', '"anyOf"', '"pattern"', '"minimum"', '"maxItems"'))
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", SCHEMAS)
def test_whatever_is_written_under_a_schema_validates(walker, name):
    """Random bytes where a model would choose: every answer that ends is valid, and nothing was relaxed."""
    compiled = walker.compiler.compile(Constraint(Json(SCHEMAS[name], name, strict=True)))
    assert not compiled.warnings
    finished = 0
    for seed in range(3):
        ids = walker.random_answer(compiled.make(), seed)
        if ids is not None:
            validate(SCHEMAS[name], walker.text(ids))
            finished += 1
    assert finished or name in {"linked_list", "tree", "expression"}


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        (PATTERN, "pattern"),
        ({"type": "string", "pattern": "(a)\\1"}, "pattern"),
        ({"type": "string", "pattern": "(" * 20_000}, "pattern"),
        ({"type": "string", "pattern": "(" * 300 + "a" + ")" * 300}, "pattern"),
        ({"type": "string", "pattern": 5}, "pattern"),
        ({"type": "string", "format": "idn-email"}, "format"),
        ({"type": "string", "not": {"const": "x"}}, "not"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"oneOf": [{"type": "string"}, {"minLength": 3}]}, "oneOf"),
        ({"$ref": "#/$defs/nowhere"}, "$ref"),
        ({"$ref": "https://example.org/schema"}, "$ref"),
        ({"type": "whatever"}, "type"),
        ({"type": "object", "properties": {"x": True, "y": True}, "minProperties": 1}, "minProperties"),
        ({"type": "integer", "minimum": "3"}, "minimum"),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, "if"),
        ({"type": "object", "patternProperties": {"^(?=a)": True}}, "patternProperties"),
    ],
)
def test_an_impossible_keyword_is_relaxed_alone_and_named(walker, warnings, schema, keyword):
    relaxed = warnings(inside(schema))
    assert any(f"{TOOL}.properties.a: '{keyword}' is not enforced" in text for text in relaxed), relaxed
    assert all(".properties.b" not in text for text in relaxed)
    with pytest.raises(InvalidRequestError, match="cannot be enforced") as caught:
        warnings(inside(schema), strict=True)
    assert caught.value.param == f"{TOOL}.properties.a" and keyword in caught.value.message
    assert walker.walk(Json(inside(schema), TOOL), '{"a": "zz", "b": x') in ('{"a": "zz", "b": ', '{"a": ')


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": ["array", "null"], "items": {"anyOf": [{"type": "integer"}, {"const": "all"}]}},
        {"type": "object", "properties": {"any": True}, "additionalProperties": False},
        {"type": "array", "uniqueItems": False},
        {"type": "object", "propertyNames": {"type": "string"}},
        {"type": "integer", "format": "int64"},
        {"$schema": "https://json.schemastore.org/other", "type": "string"},
        {"type": "integer", "minimum": 3, "exclusiveMinimum": True},
        {"title": "t", "description": "d", "default": 1, "examples": [1], "x-order": 3, "readOnly": True},
        {"x-guidance": {"whitespace_pattern": "("}, "type": "string"},
    ],
)
def test_legal_and_harmless_schemas_need_no_relaxing(warnings, schema):
    assert warnings(schema, strict=True) == ()


def test_one_difficult_tool_in_thirty(walker):
    """Its other keywords and the other tools are enforced as before."""
    easy = inside({"enum": ["x", "y"]})
    hard = {
        "type": "object",
        "properties": {"mail": PATTERN, "kind": {"enum": ["p", "q"]}},
        "required": ["mail", "kind"],
    }
    schemas = [easy] * 29 + [hard]
    calls = [
        Sequence((Text(f'{{"name": "tool{i}", "arguments": '), Json(schema, f"tools[{i}]"), Text("}")))
        for i, schema in enumerate(schemas)
    ]
    rule = Sequence((Text("<call>"), OneOf(tuple(calls))))
    compiled = walker.compiler.compile(Constraint(FreeText((Triggered("<call>", rule),))))
    (warning,) = compiled.warnings
    assert "tools[29].properties.mail: 'pattern'" in warning and "look-around" in warning
    for text in (
        '<call>{"name": "tool3", "arguments": {"a": "x", "b": 1}}',
        '<call>{"name": "tool29", "arguments": {"mail": "x@", "kind": "p"}}',
    ):
        assert walker.walk_tokens(compiled.make(), text.encode()) == text + END
    for text, found in (
        ('<call>{"name": "tool3", "arguments": {"a": "z"', '<call>{"name": "tool3", "arguments": {"a": "'),
        (
            '<call>{"name": "tool29", "arguments": {"mail": "x", "kind": "z"',
            '<call>{"name": "tool29", "arguments": {"mail": "x", "kind": "',
        ),
    ):
        assert walker.walk_tokens(compiled.make(), text.encode()) == found  # fmt: skip


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 10_000},
        {"type": "string", "minLength": 5_000, "maxLength": 10**9},
        {"type": "array", "maxItems": 10**9, "items": {"type": "string", "maxLength": 10_000}},
        {"type": "array", "maxItems": 100, "items": inside({"type": "array", "maxItems": 100, "items": {"type": "string", "maxLength": 10_000}})},
        {"type": "integer", "minimum": 0, "maximum": 10**30},
        {"enum": [f"value {n}" for n in range(2_000)]},
    ],
)  # fmt: skip
def test_large_bounds_do_not_explode(walker, schema):
    started = time.perf_counter()
    compiled = walker.compiler.compile(Constraint(Json(schema, strict=True)))
    constraint = compiled.make()
    for _ in range(30):
        choices = constraint.forced()[:1] or [
            next(i for i in range(32, 127) if i != 34 and _can(constraint, i))
        ]
        if constraint.accept(choices[0]):
            break
    assert time.perf_counter() - started < 10, "a bound was unrolled"


def _can(constraint: Any, token: int) -> bool:
    return bool(constraint.mask()[token // 32] >> (token % 32) & 1)


@pytest.mark.parametrize(
    "schema", [False, {"enum": []}, {"type": "integer", "minimum": 3, "maximum": 2}, inside(False)]
)
def test_a_schema_nothing_satisfies_is_refused_under_strict(warnings, schema):
    with pytest.raises(InvalidRequestError):
        warnings(schema, strict=True)


def test_too_deep_and_too_large_schemas_keep_their_type(warnings):
    deep: Any = {"type": "string"}
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    (warning,) = warnings(deep)
    assert "nested more than" in warning
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(4_000)}
    (warning,) = warnings({"$defs": {**chain, "d4000": True}, "$ref": "#/$defs/d0", "type": "object"})
    assert "references" in warning


def test_a_malformed_pattern_of_the_client_s_own_schema_is_refused(warnings):
    for pattern in ("*", "a{9,2}", "(" * 20_000, "[z-a]"):
        with pytest.raises(InvalidRequestError, match="pattern"):
            warnings(inside({"type": "string", "pattern": pattern}), refuse_broken=True)
    assert warnings(inside(PATTERN), refuse_broken=True)


def test_white_space_is_bounded(walker):
    schema = {"type": "array", "items": {"type": "integer"}}
    for white in ("   ", "\n\n", "\n" + " " * 65):
        assert walker.walk(Json(schema), f"[{white}1]") != f"[{white}1]" + END
    for white in ("", " ", "\n  ", "\r\n\t\t"):
        assert walker.walk(Json(schema), f"[{white}1]") == f"[{white}1]" + END


@pytest.mark.parametrize(
    ("schema", "good", "endless"),
    [
        ({"type": "integer"}, "-123456789012345678", "1" * 40),
        ({"type": ["integer", "null"]}, "null", "-" + "1" * 40),
        ({"type": "number", "minimum": 0, "maximum": 1}, "0.1234567891", "0." + "1" * 40),
        ({"type": "string", "format": "time"}, '"12:00:00.123456789+00:00"', '"12:00:00.' + "1" * 40),
        ({"type": "string", "format": "email"}, '"someone.else@mail.example.org"', '"' + "a" * 200),
    ],
)
def test_digits_do_not_go_on_for_ever(walker, schema, good, endless):
    assert walker.walk(Json(schema, strict=True), good) == good + END
    assert not walker.walk(Json(schema, strict=True), endless).startswith(endless)


def test_equal_schemas_are_worked_on_once(monkeypatch):
    compiler, calls = GrammarCompiler(Walker().tokenizer), itertools.count()
    from edgewise.grammar import compiler as module

    prepare = module.prepare
    monkeypatch.setattr(module, "prepare", lambda rule, limits: (next(calls), prepare(rule, limits))[1])
    schema = Json(inside({"type": "string"}))
    compiler.compile(Constraint(Sequence((Text("a"), schema))))
    compiler.compile(Constraint(Sequence((Text("b"), schema))))
    assert next(calls) == 1


@pytest.mark.parametrize(
    "text", ['"Z\\u00fcrich"', '"\\ud83d\\ude42"', '"tab\\t line\\n \\u0001"', '"Zürich 🙂"']
)
@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": "string", "maxLength": 20}, True])
def test_letters_may_be_escaped(walker: Walker, schema: Any, text: str):
    assert walker.walk(Json(schema), text) == text + END


@pytest.mark.parametrize("text", ['"\\ud83d"', '"\\ude42"', '"\\u00g0"'])
def test_half_a_pair_is_no_escape(walker: Walker, text: str):
    assert not walker.walk(Json({"type": "string"}), text).startswith(text)
