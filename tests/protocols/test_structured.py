"""Structured output: every name of it, one meaning, and never two at once."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from edgewise.core.errors import InvalidRequestError
from edgewise.core.grammar import OutputFormat
from edgewise.protocols import chat, completions
from edgewise.protocols.fields import Fields
from edgewise.protocols.structured import ignored_options, read_output_format

SCHEMA = {"type": "object", "properties": {"k": {"type": "string"}}}
TAG = {"type": "structural_tag", "format": {"type": "any_text"}}
OLD_TAG = {"type": "structural_tag", "structures": [], "triggers": ["<f"]}
GBNF = 'root ::= "a" | "b"'
LARK = 'start: "a" | "b"'


def read(**body: Any) -> OutputFormat | None:
    return read_output_format(Fields(body))


def response_format(**fields: Any) -> OutputFormat | None:
    return read(response_format=fields)


@pytest.mark.parametrize(
    ("fields", "kind", "value", "param"),
    [
        ({"type": "json_object"}, "json_object", None, "response_format"),
        ({"type": "json_object", "schema": SCHEMA}, "json_schema", SCHEMA, "response_format.schema"),
        ({"type": "json_schema", "schema": SCHEMA}, "json_schema", SCHEMA, "response_format.schema"),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
            "json_schema",
            SCHEMA,
            "response_format.json_schema.schema",
        ),
        (
            {"type": "json_schema", "json_schema": {"schema_definition": SCHEMA}},
            "json_schema",
            SCHEMA,
            "response_format.json_schema.schema_definition",
        ),
        (
            {"type": "json_schema", "json_schema": SCHEMA},
            "json_schema",
            SCHEMA,
            "response_format.json_schema",
        ),
        (
            {"type": "json_schema", "json_schema": {"schema": True}},
            "json_schema",
            True,
            "response_format.json_schema.schema",
        ),
        (TAG, "structural_tag", TAG, "response_format"),
        (OLD_TAG, "structural_tag", OLD_TAG, "response_format"),
        ({"type": "grammar", "grammar": GBNF}, "gbnf", GBNF, "response_format.grammar"),
    ],
)
def test_response_formats(fields: dict[str, Any], kind: str, value: Any, param: str):
    found = response_format(**fields)
    assert found is not None
    assert (found.kind, found.value, found.param) == (kind, value, param)


def test_text_and_null_ask_for_nothing():
    assert response_format(type="text") is None
    assert read(response_format=None, structured_outputs=None, guided_json=None, grammar="") is None


def test_strict_is_the_request_s_for_response_format_and_given_for_the_rest():
    envelope = {"name": "n", "schema": SCHEMA, "strict": True}
    strict = response_format(type="json_schema", json_schema=envelope)
    assert strict is not None and strict.strict and strict.name == "n"
    loose = response_format(type="json_schema", json_schema={"schema": SCHEMA})
    assert loose is not None and not loose.strict
    explicit = read(guided_json=SCHEMA)
    assert explicit is not None and explicit.strict


EVERY_NAME = [
    ({"structured_outputs": {"json": SCHEMA}}, "json_schema", SCHEMA, "structured_outputs.json"),
    ({"structured_outputs": {"json": "{}"}}, "json_schema", {}, "structured_outputs.json"),
    ({"structured_outputs": {"json_object": True}}, "json_object", None, "structured_outputs.json_object"),
    ({"structured_outputs": {"regex": "a+"}}, "regex", "a+", "structured_outputs.regex"),
    ({"structured_outputs": {"choice": ["a", "b"]}}, "choice", ("a", "b"), "structured_outputs.choice"),
    ({"structured_outputs": {"grammar": LARK}}, "lark", LARK, "structured_outputs.grammar"),
    ({"structured_outputs": {"grammar": GBNF}}, "gbnf", GBNF, "structured_outputs.grammar"),
    (
        {"structured_outputs": {"structural_tag": '{"format": {"type": "any_text"}}'}},
        "structural_tag",
        {"format": {"type": "any_text"}},
        "structured_outputs.structural_tag",
    ),
    ({"guided_json": SCHEMA}, "json_schema", SCHEMA, "guided_json"),
    ({"guided_json": '{"type": "object"}'}, "json_schema", {"type": "object"}, "guided_json"),
    ({"guided_json_object": True}, "json_object", None, "guided_json_object"),
    ({"guided_regex": "a+"}, "regex", "a+", "guided_regex"),
    ({"guided_choice": ["a"]}, "choice", ("a",), "guided_choice"),
    ({"guided_grammar": LARK}, "lark", LARK, "guided_grammar"),
    ({"guided_decoding": {"json_object": True}}, "json_object", None, "guided_decoding.json_object"),
    ({"guided_decoding": {"json_schema": SCHEMA}}, "json_schema", SCHEMA, "guided_decoding.json_schema"),
    ({"guided_decoding": {"regex": "a+", "ebnf": "", "choice": []}}, "regex", "a+", "guided_decoding.regex"),
    ({"guided_decoding": {"ebnf": GBNF}}, "gbnf", GBNF, "guided_decoding.ebnf"),
    ({"guided_decoding": {"choice": ["a"]}}, "choice", ("a",), "guided_decoding.choice"),
    ({"guided_decoding": {"structural_tag": TAG}}, "structural_tag", TAG, "guided_decoding.structural_tag"),
    ({"grammar": GBNF}, "gbnf", GBNF, "grammar"),
    ({"json_schema": SCHEMA}, "json_schema", SCHEMA, "json_schema"),
]


@pytest.mark.parametrize(("body", "kind", "value", "param"), EVERY_NAME)
def test_every_name_is_read_by_both_endpoints(body: dict[str, Any], kind: str, value: Any, param: str):
    expected = OutputFormat(kind, value, strict=True, param=param)  # type: ignore[arg-type]
    chatted = chat.parse_request({"messages": [{"role": "user", "content": "x"}], **body})
    completed = completions.parse_request({"prompt": "x", **body})
    assert chatted.chat.output_format == completed.output_format == expected
    assert not chatted.chat.ignored_fields and not completed.ignored_fields


@pytest.mark.parametrize(
    "pair",
    [
        pair
        for pair in itertools.combinations([EVERY_NAME[i][0] for i in (0, 9, 11, 14, 20, 21)], 2)
        if not set(pair[0]) & set(pair[1])
    ],
)
def test_two_at_once_are_refused_naming_both(pair: tuple[dict[str, Any], dict[str, Any]]):
    with pytest.raises(InvalidRequestError) as caught:
        read(**pair[0], **pair[1])
    for name in (*pair[0], *pair[1]):
        assert name in caught.value.message


def test_two_in_one_object_are_refused_naming_both():
    with pytest.raises(InvalidRequestError, match=r"structured_outputs\.regex.*structured_outputs\.json"):
        read(structured_outputs={"json": {}, "regex": "a"})
    with pytest.raises(InvalidRequestError, match=r"guided_decoding\.regex.*response_format"):
        read(guided_decoding={"regex": "a"}, response_format={"type": "json_object"})


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "poem"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": [1]}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": 1}}},
            "response_format.json_schema.strict",
        ),
        ({"response_format": {"type": "structural_tag"}}, "response_format.structures"),
        ({"response_format": {"type": "structural_tag", "structures": []}}, "response_format.triggers"),
        ({"structured_outputs": []}, "structured_outputs"),
        ({"structured_outputs": {"whitespace_pattern": " "}}, "structured_outputs.whitespace_pattern"),
        ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": "a"}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": ["a", 1]}}, "structured_outputs.choice[1]"),
        ({"structured_outputs": {"choice": [""]}}, "structured_outputs.choice[0]"),
        ({"structured_outputs": {"json_object": "yes"}}, "structured_outputs.json_object"),
        ({"structured_outputs": {"structural_tag": "["}}, "structured_outputs.structural_tag"),
        ({"guided_decoding": {"poem": 1}}, "guided_decoding.poem"),
        ({"guided_choice": ["a"] * 10_001}, "guided_choice"),
    ],
)
def test_refusals_name_the_field(body: dict[str, Any], param: str):
    with pytest.raises(InvalidRequestError) as caught:
        read(**body)
    assert caught.value.param == param and param in caught.value.message


def test_options_beside_a_constraint_are_listed_as_ignored():
    body = {"structured_outputs": {"regex": "a", "disable_additional_properties": True, "backend": None}}
    assert ignored_options(Fields(body)) == ["structured_outputs.disable_additional_properties"]


def test_json_without_white_space():
    for compact in (True, False):
        output = read(structured_outputs={"json": {"type": "object"}, "disable_any_whitespace": compact})
        assert output is not None and output.compact is compact
    output = read(guided_decoding={"json_object": True, "disable_any_whitespace": True})
    assert output is not None and output.compact


@pytest.mark.parametrize("text", ["[::=]", 'root ::= "x"\n# start: not Lark'])
def test_a_rule_sign_makes_a_grammar_gbnf(text: str):
    found = read(grammar=text)
    assert found is not None and found.kind == "gbnf"
