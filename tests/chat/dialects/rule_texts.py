"""Texts that a grammar rule allows, for hypothesis."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from edgewise.core.grammar import Json, OneOf, RawText, Regex, Relaxed, Repeat, Rule, Sequence, Text


def texts_of(rule: Rule, fragments: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Texts of a rule; raw text is made of `fragments`."""
    match rule:
        case Text(text):
            return st.just(text)
        case Relaxed():
            return st.just("")
        case Regex(pattern):
            return st.from_regex(pattern, fullmatch=True)
        case RawText(until):
            raw = st.lists(st.sampled_from(fragments), max_size=5).map("".join)
            return raw.filter(lambda text: not any(stop in text for stop in until))
        case Json(schema):
            return values_of(schema, fragments).map(lambda value: json.dumps(value, ensure_ascii=False))
        case Sequence(rules):
            return st.tuples(*(texts_of(each, fragments) for each in rules)).map("".join)
        case OneOf(rules):
            return st.one_of([texts_of(each, fragments) for each in rules])
        case Repeat(each, low, high, joint):
            return _repeated(texts_of(each, fragments), low, high, joint, fragments)
    raise AssertionError(f"no texts of {rule}")


def _repeated(
    each: st.SearchStrategy[str], low: int, high: int | None, joint: Rule | None, fragments: tuple[str, ...]
) -> st.SearchStrategy[str]:
    assert joint is None or isinstance(joint, Text)
    between = joint.text if joint else ""
    return st.lists(each, min_size=low, max_size=low + 2 if high is None else high).map(between.join)


def values_of(schema: Any, fragments: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """Values of the few kinds of schema that the tests' tools have."""
    if "$ref" in schema:
        return values_of(schema["$defs"][schema["$ref"].rsplit("/", 1)[1]], fragments)
    kind = schema.get("type")
    if "anyOf" in schema:
        return st.one_of([values_of(each, fragments) for each in schema["anyOf"]])
    if isinstance(kind, list):
        return st.one_of([values_of({**schema, "type": each}, fragments) for each in kind])
    if kind == "object":
        properties, required = schema.get("properties", {}), schema.get("required", [])
        defs = {"$defs": schema["$defs"]} if "$defs" in schema else {}
        inner = {key: values_of({**defs, **value}, fragments) for key, value in properties.items()}
        given = {key: value for key, value in inner.items() if key in required}
        return st.fixed_dictionaries(given, optional={key: inner[key] for key in inner.keys() - given.keys()})
    simple: dict[str, st.SearchStrategy[Any]] = {
        "string": st.lists(st.sampled_from(fragments), max_size=4).map("".join),
        "integer": st.integers(-99, 99),
        "number": st.sampled_from([0, -1, 2.5, 1e-7]),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    if kind == "array":
        return st.lists(values_of(schema.get("items", {"type": "null"}), fragments), max_size=2)
    return simple[kind]
