"""Structured output as requests name it."""

from __future__ import annotations

import pytest

from edgewise.core.errors import InvalidRequestError
from edgewise.core.grammar import OutputFormat
from edgewise.grammar import rule_of
from tests.grammar.walking import END, Walker

SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2]}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def walker() -> Walker:
    return Walker()


@pytest.mark.parametrize(
    ("kind", "value", "text", "found"),
    [
        ("json_object", None, '{"a": [1]}', '{"a": [1]}' + END),
        ("json_object", None, "[", ""),
        ("json_schema", SCHEMA, '{"n": 3', '{"n": '),
        ("regex", "a+", "aa", "aa" + END),
        ("choice", ("one", "two"), "two", "two" + END),
        ("choice", ("one", "two"), "three", "t"),
        ("lark", 'start: "x"+', "xx", "xx" + END),
        ("gbnf", 'root ::= "x" [0-9]', "x1", "x1" + END),
    ],
)
def test_each_kind(walker, kind, value, text, found):
    assert walker.walk(rule_of(OutputFormat(kind, value)), text) == found


OLDER = {
    "structures": [
        {"begin": "<f=a>", "schema": SCHEMA, "end": "</f>"},
        {"begin": "<f=b>", "schema": {"type": "integer"}, "end": "</f>"},
    ],
    "triggers": ["<f="],
}
TAG_A = {
    "type": "tag",
    "begin": "<a>",
    "content": {"type": "json_schema", "json_schema": SCHEMA},
    "end": "</a>",
}
TAG_B = {"begin": "<b>", "content": {"type": "any_text"}, "end": ["</b>", "</bb>"]}


def newer(node: dict) -> dict:
    return {"type": "structural_tag", "format": node}


@pytest.mark.parametrize(
    ("tag", "text", "found"),
    [
        (OLDER, 'hi <f=a>{"n": 1}</f> and <f=b>7</f>', 'hi <f=a>{"n": 1}</f> and <f=b>7</f>' + END),
        (OLDER, "hi <f=c>", "hi <f="),
        (newer(TAG_A), '<a>{"n": 2}</a>', '<a>{"n": 2}</a>' + END),
        (newer({"type": "const_string", "value": "abc"}), "abd", "ab"),
        (newer({"type": "any_text", "excludes": ["no"]}), "yes no", "yes n" + END),
        (newer({"type": "regex", "pattern": "[0-9]+"}), "12", "12" + END),
        (newer({"type": "grammar", "grammar": 'root ::= "x"'}), "x", "x" + END),
        (newer({"type": "sequence", "elements": [{"type": "const_string", "value": "x"}, TAG_B | {"type": "tag"}]}), "x<b>free</bb>", "x<b>free</bb>" + END),
        (newer({"type": "or", "elements": [TAG_A, {"type": "const_string", "value": "no"}]}), "no", "no" + END),
        (newer({"type": "optional", "content": {"type": "const_string", "value": "x"}}), "", END),
        (newer({"type": "repeat", "min": 2, "max": 3, "content": {"type": "const_string", "value": "x"}}), "xxxx", "xxx" + END),
        (newer({"type": "triggered_tags", "triggers": ["<a", "<b"], "tags": [TAG_A, TAG_B]}), "hm <b>x</b> <ac", "hm <b>x</b> <a"),
        (newer({"type": "triggered_tags", "triggers": ["<b"], "tags": [TAG_B], "stop_after_first": True}), "hm <b>x</b>y", "hm <b>x</b>" + END),
        (newer({"type": "triggered_tags", "triggers": ["<b"], "tags": [TAG_B], "at_least_one": True}), "hm", ""),
        (newer({"type": "tags_with_separator", "separator": ",", "tags": [TAG_B]}), "<b>x</b>,<b>y</b>", "<b>x</b>,<b>y</b>" + END),
    ],
)  # fmt: skip
def test_structural_tags(walker, tag, text, found):
    assert walker.walk(rule_of(OutputFormat("structural_tag", tag)), text) == found


@pytest.mark.parametrize(
    ("tag", "where"),
    [
        ({}, "response_format"),
        (OLDER | {"triggers": ["<g="]}, "triggers"),
        (OLDER | {"triggers": ["<f=a"]}, "triggers"),
        (OLDER | {"structures": []}, "structures"),
        (OLDER | {"structures": [{"begin": "<f=", "end": 3}]}, r"structures\[0\].end"),
        (newer({"type": "wonder"}), "format.type"),
        (newer({"type": "sequence", "elements": [{"type": "regex"}]}), r"elements\[0\].pattern"),
        (newer({"type": "sequence", "elements": [{"type": "triggered_tags", "triggers": ["<b"], "tags": [TAG_B]}]}), r"elements\[0\]"),
        (newer({"type": "repeat", "min": 3, "max": 2, "content": {"type": "any_text"}}), "format"),
    ],
)  # fmt: skip
def test_structural_tags_that_cannot_be_read(tag, where):
    with pytest.raises(InvalidRequestError, match=where) as caught:
        rule_of(OutputFormat("structural_tag", tag))
    assert caught.value.param.startswith("response_format")


def test_strictness_reaches_the_schemas():
    loose = {"type": "string", "pattern": "(?!a)"}
    rule = rule_of(OutputFormat("json_schema", loose, strict=True, param="text.format.schema"))
    with pytest.raises(InvalidRequestError) as caught:
        Walker().make(rule)
    assert caught.value.param == "text.format.schema"
