"""Structured output under all its names -> `OutputFormat`.

OpenAI's `response_format`, vLLM's `structured_outputs` and older `guided_*`, TensorRT Edge-LLM's `guided_decoding`, llama.cpp's `grammar`
and `json_schema` say the same things. A request may say one of them. Whoever names a constraint outright means it: what cannot be
enforced of it is an error. Only `response_format` without `strict` may be relaxed, with a warning, keyword by keyword.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import orjson

from edgewise.core.grammar import OutputFormat
from edgewise.protocols.fields import Fields

Reader = Callable[[Fields, str], OutputFormat | None]

_SCHEMA_WORDS = frozenset(
    ("type", "properties", "$ref", "anyOf", "oneOf", "allOf", "enum", "const", "items", "$defs", "required")
)
"""What tells a schema from the envelope round one."""
_GBNF_SIGN = "::="
_COMPACT = "disable_any_whitespace"
MAX_CHOICES = 10_000


def read_output_format(fields: Fields) -> OutputFormat | None:
    """The structured output that is asked for. Raises InvalidRequestError; for two at once it names both."""
    found = list(_formats(fields))
    if len(found) > 1:
        first, second = (output.param.split(".")[0] for output in found[:2])
        where = "them" if first != second else "its fields"
        raise fields.fail(
            second,
            f"asks for {found[1].kind} ({found[1].param}) and {found[0].param} for {found[0].kind}; give one of {where}",
        )
    return replace(found[0], compact=_is_compact(fields)) if found else None


def _is_compact(fields: Fields) -> bool:
    """vLLM's `disable_any_whitespace`, beside a constraint."""
    objects = (given for key in _OBJECTS if (given := fields.object(key)) is not None)
    return True in [given.boolean(_COMPACT) for given in objects]  # each is read, and checked


def ignored_options(fields: Fields) -> list[str]:
    """What the objects of constraints hold beside constraints: white space and backend options, which have no effect."""
    return [
        f"{key}.{name}"
        for key, readers in _OBJECTS.items()
        if (given := fields.object(key)) is not None
        for name, value in given.data.items()
        if name not in readers and name != _COMPACT and value not in (None, False)
    ]


def _formats(fields: Fields) -> Iterator[OutputFormat]:
    if (given := fields.object("response_format")) is not None:
        yield from _some(_response_format(given))
    for key, readers in _OBJECTS.items():
        if (given := fields.object(key)) is not None:
            yield from _one_of(given, readers)
    yield from _all_of(fields, _TOP_LEVEL)


def _some(output: OutputFormat | None) -> Iterator[OutputFormat]:
    if output is not None:
        yield output


def _all_of(fields: Fields, readers: dict[str, Reader]) -> Iterator[OutputFormat]:
    for key, read in readers.items():
        if fields.get(key) not in (None, "", []):  # an empty value is how some clients leave a field out
            yield from _some(read(fields, key))


def _one_of(fields: Fields, readers: dict[str, Reader]) -> Iterator[OutputFormat]:
    """The kinds an object of constraints asks for; an object that names none of them is a mistake."""
    if fields.data and not any(key in readers for key in fields.data):
        raise fields.fail(next(iter(fields.data)), f"is no constraint; give one of {', '.join(readers)}")
    yield from _all_of(fields, readers)


def _response_format(given: Fields) -> OutputFormat | None:
    kind = given.require("type")
    if kind == "text":
        return None
    if kind == "json_object":
        if given.get("schema") is None:
            return OutputFormat("json_object", param=given.path)
        return _schema(given, "schema", strict=given.boolean("strict"))
    if kind == "json_schema":
        return _enveloped_schema(given)
    if kind == "structural_tag":
        return OutputFormat("structural_tag", _checked_tag(given), param=given.path)
    if kind == "grammar":
        given.require("grammar")
        return _grammar(given, "grammar")
    raise given.fail("type", "must be text, json_object, json_schema, structural_tag or grammar", kind)


def _enveloped_schema(given: Fields) -> OutputFormat:
    """OpenAI's {"json_schema": {"name", "schema", "strict"}}, or the schema itself there or under "schema"."""
    inner = given.object("json_schema")
    if inner is None:
        given.require("schema")
        return _schema(given, "schema", strict=given.boolean("strict"), name=given.string("name") or "")
    for key in ("schema", "schema_definition"):
        if inner.get(key) is not None:
            strict, name = inner.boolean("strict"), inner.string("name") or ""
            return _schema(inner, key, strict=strict, name=name)
    if _SCHEMA_WORDS.isdisjoint(inner.data):
        raise inner.fail("schema", "is required")
    return _schema(given, "json_schema", strict=given.boolean("strict"))


def _schema(fields: Fields, key: str, *, strict: bool = True, name: str = "") -> OutputFormat:
    schema = fields.get(key)
    if isinstance(schema, str):
        schema = _parsed(fields, key, schema)
    if not isinstance(schema, dict | bool):
        raise fields.fail(key, "must be a JSON schema", schema)
    return OutputFormat("json_schema", schema, strict=strict, param=fields.name(key), name=name)


def _parsed(fields: Fields, key: str, text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise fields.fail(key, f"is not valid JSON: {error}") from None


def _json_object(fields: Fields, key: str) -> OutputFormat | None:
    return OutputFormat("json_object", strict=True, param=fields.name(key)) if fields.boolean(key) else None


def _regex(fields: Fields, key: str) -> OutputFormat:
    return OutputFormat("regex", fields.string(key), strict=True, param=fields.name(key))


def _choice(fields: Fields, key: str) -> OutputFormat:
    choices = fields.strings(key) or []
    if len(choices) > MAX_CHOICES:
        raise fields.fail(key, f"must hold at most {MAX_CHOICES} texts, got {len(choices)}")
    for i, text in enumerate(choices):
        if not text:
            raise fields.fail(f"{key}[{i}]", "must not be empty")
    return OutputFormat("choice", tuple(choices), strict=True, param=fields.name(key))


def _grammar(fields: Fields, key: str) -> OutputFormat:
    """GBNF, which llama.cpp and xgrammar read, writes `::=` in every rule; Lark never does outside a string."""
    text = fields.string(key) or ""
    kind: Literal["gbnf", "lark"] = "gbnf" if _GBNF_SIGN in text else "lark"
    return OutputFormat(kind, text, strict=True, param=fields.name(key))


def _structural_tag(fields: Fields, key: str) -> OutputFormat:
    given = fields.get(key)
    if isinstance(given, str):
        given = _parsed(fields, key, given)
    tag = _checked_tag(Fields.of(given, fields.name(key)))
    return OutputFormat("structural_tag", tag, strict=True, param=fields.name(key))


def _checked_tag(tag: Fields) -> dict[str, Any]:
    """Either form: {"structures": [...], "triggers": [...]} of earlier versions, or {"format": {...}}."""
    if tag.object("format") is None:
        tag.require("structures")
        tag.array("structures")
        tag.require("triggers")
        tag.strings("triggers")
    return dict(tag.data)


_STRUCTURED_OUTPUTS: dict[str, Reader] = {
    "json": _schema,
    "json_object": _json_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "structural_tag": _structural_tag,
}
_GUIDED_DECODING: dict[str, Reader] = {
    "json_object": _json_object,
    "json_schema": _schema,
    "regex": _regex,
    "ebnf": _grammar,
    "structural_tag": _structural_tag,
    "choice": _choice,
}
_OBJECTS = {"structured_outputs": _STRUCTURED_OUTPUTS, "guided_decoding": _GUIDED_DECODING}
_TOP_LEVEL: dict[str, Reader] = {
    "guided_json": _schema,
    "guided_json_object": _json_object,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
    "grammar": _grammar,
    "json_schema": _schema,
}
