"""Structural tags: free text with tagged parts of given forms, as vLLM and xgrammar write them.

The older form lists `structures` (begin, schema, end) and `triggers`; the newer one is a tree under `format`. Source: xgrammar's
documentation of both. Free text round triggered tags is supported as the whole format only.
"""

from __future__ import annotations

from typing import Any

from edgewise.core.errors import InvalidRequestError
from edgewise.core.grammar import (
    FreeText,
    Gbnf,
    Json,
    OneOf,
    RawText,
    Regex,
    Repeat,
    Rule,
    Sequence,
    Text,
    Triggered,
)

MAX_DEPTH = 32


def structural_tag(value: Any, path: str, *, strict: bool = False) -> Rule | FreeText:
    """A structural tag as a rule. Raises InvalidRequestError naming the field at fault."""
    reader = _Reader(strict)
    if isinstance(value, dict) and "structures" in value:
        return reader.older_form(value, path)
    if isinstance(value, dict) and "format" in value:
        return reader.top(value["format"], f"{path}.format")
    raise _fault(path, "needs a format, or structures and triggers")


class _Reader:
    def __init__(self, strict: bool) -> None:
        self._strict = strict

    def older_form(self, value: dict[str, Any], path: str) -> FreeText:
        triggers = _texts(value.get("triggers"), f"{path}.triggers")
        tags: list[tuple[str, Rule]] = []
        for i, one in enumerate(_list(value["structures"], f"{path}.structures")):
            where = f"{path}.structures[{i}]"
            begin, end = _text(one, "begin", where), _text(one, "end", where)
            schema = self._schema(one.get("schema", True), f"{where}.schema")
            tags.append((begin, Sequence((Text(begin), schema, Text(end)))))
        return FreeText(_regions(triggers, tags, path))

    def top(self, node: Any, path: str) -> Rule | FreeText:
        """The whole answer, where free text round triggered tags has its place."""
        kind = _kind(node, path)
        if kind == "any_text":
            return FreeText(max_regions=0, banned=_texts(node.get("excludes", []), f"{path}.excludes"))
        if kind == "triggered_tags" and not node.get("at_least_one"):
            tags = self._tags(node, path)
            regions = _regions(_texts(node.get("triggers"), f"{path}.triggers"), tags, path)
            excluded = _texts(node.get("excludes", []), f"{path}.excludes")
            return FreeText(regions, 1 if node.get("stop_after_first") else None, excluded)
        return self.rule(node, path, (), 0)

    def rule(self, node: Any, path: str, until: tuple[str, ...], depth: int) -> Rule:
        """`until`: what ends a raw text in this place."""
        if depth > MAX_DEPTH:
            raise _fault(path, f"is nested more than {MAX_DEPTH} levels deep")
        match _kind(node, path):
            case "const_string":
                return Text(_text(node, "value" if "value" in node else "text", path))
            case "json_schema":
                return self._schema(node.get("json_schema"), f"{path}.json_schema")
            case "regex":
                return Regex(_text(node, "pattern", path))
            case "grammar":
                return Gbnf(_text(node, "grammar", path))
            case "any_text":
                return RawText((*until, *_texts(node.get("excludes", []), f"{path}.excludes")))
            case "tag":
                return self._tag(node, path, depth)[1]
            case "sequence":
                return Sequence(self._elements(node, path, until, depth))
            case "or":
                return OneOf(self._elements(node, path, until, depth))
            case "optional" | "star" | "plus" | "repeat" as kind:
                low, high = _times(kind, node, path)
                return Repeat(self.rule(node.get("content"), f"{path}.content", until, depth + 1), low, high)
            case "tags_with_separator" | "triggered_tags" as kind:
                return self._tags_in_a_row(kind, node, path)
            case kind:
                raise _fault(f"{path}.type", f"{kind!r} is not supported")

    def _elements(self, node: Any, path: str, until: tuple[str, ...], depth: int) -> tuple[Rule, ...]:
        each = _list(node.get("elements"), f"{path}.elements")
        return tuple(self.rule(one, f"{path}.elements[{i}]", until, depth + 1) for i, one in enumerate(each))

    def _tags_in_a_row(self, kind: str, node: Any, path: str) -> Rule:
        if kind == "triggered_tags" and not node.get("at_least_one"):
            raise _fault(path, "triggered_tags with free text round them can only be the whole format")
        tags = OneOf(tuple(rule for _, rule in self._tags(node, path)))
        joint = (
            Text(_text(node, "separator", path)) if kind == "tags_with_separator" else Regex(r"[ \t\r\n]*")
        )
        low, high = int(bool(node.get("at_least_one"))), 1 if node.get("stop_after_first") else None
        return Repeat(tags, low, high, joint)

    def _tags(self, node: Any, path: str) -> list[tuple[str, Rule]]:
        each = _list(node.get("tags"), f"{path}.tags")
        return [self._tag(one, f"{path}.tags[{i}]", 0) for i, one in enumerate(each)]

    def _tag(self, node: Any, path: str, depth: int) -> tuple[str, Rule]:
        """How a tag begins, and all of it."""
        if not isinstance(node, dict):
            raise _fault(path, "must be an object")
        begin = _text(node, "begin", path)
        ends = node.get("end", "")
        ends = (ends,) if isinstance(ends, str) else _texts(ends, f"{path}.end")
        content = self.rule(
            node.get("content"), f"{path}.content", tuple(end for end in ends if end), depth + 1
        )
        return begin, Sequence((Text(begin), content, OneOf(tuple(map(Text, ends)))))

    def _schema(self, schema: Any, path: str) -> Json:
        if not isinstance(schema, dict | bool):
            raise _fault(path, "must be a JSON schema")
        return Json(schema, path, strict=self._strict, refuse_broken=True)


def _regions(triggers: tuple[str, ...], tags: list[tuple[str, Rule]], path: str) -> tuple[Triggered, ...]:
    """A region for each trigger, with the tags that begin with it."""
    regions = []
    for trigger in triggers:
        rules = tuple(rule for begin, rule in tags if begin.startswith(trigger))
        if not trigger or not rules:
            raise _fault(f"{path}.triggers", f"no tag begins with the trigger {trigger!r}")
        regions.append(Triggered(trigger, OneOf(rules)))
    for begin, _ in tags:
        if not begin.startswith(triggers):
            raise _fault(f"{path}.triggers", f"no trigger begins the tag {begin!r}")
    return tuple(regions)


def _kind(node: Any, path: str) -> str:
    if not isinstance(node, dict) or not isinstance(node.get("type"), str):
        raise _fault(path, "must be an object with a type")
    kind: str = node["type"]
    return kind


def _times(kind: str, node: Any, path: str) -> tuple[int, int | None]:
    if kind != "repeat":
        return {"optional": (0, 1), "star": (0, None), "plus": (1, None)}[kind]
    low, high = node.get("min", 0), node.get("max")
    high = None if high == -1 else high
    if (
        not isinstance(low, int)
        or low < 0
        or (high is not None and (not isinstance(high, int) or high < low))
    ):
        raise _fault(path, "needs numbers min and max, min at most max")
    return low, high


def _text(node: Any, key: str, path: str) -> str:
    value = node.get(key) if isinstance(node, dict) else None
    if not isinstance(value, str):
        raise _fault(f"{path}.{key}", "must be a string")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise _fault(path, "must be a list that is not empty")
    return value


def _texts(value: Any, path: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _fault(path, "must be a list of strings")
    return tuple(value)


def _fault(path: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path} {what}", param=path)
