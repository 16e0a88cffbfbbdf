"""JSON schemas made ready for the grammar engine: checked, and relaxed where it cannot express a keyword.

The engine takes most of JSON Schema but refuses a schema whole for one keyword it lacks. Here that keyword alone is left out, with a
warning that names it; under `strict` it is an error. Keywords are found in two ways: those known to be missing by looking, the rest by
asking the engine and leaving out, one after the other, what it names as its reason.
"""

from __future__ import annotations

import functools
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

from llguidance import LLMatcher

from edgewise.core.errors import InvalidRequestError
from edgewise.core.grammar import Json
from edgewise.grammar.bounds import bound
from edgewise.grammar.limits import GrammarLimits, json_depth
from edgewise.grammar.references import leave_out_loops
from edgewise.grammar.subschemas import Path, subschemas

FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
)
# One space, or a line break with indentation: what people and models write. Without a bound small models write blanks for ever.
WHITE_SPACE = r"[ \t]{1,2}|\r?\n[ \t]{0,64}"

UNKNOWN_TO_ENGINE = frozenset((
    "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "contains", "minContains",
    "maxContains", "uniqueItems", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef",
    "$recursiveRef",
))  # fmt: skip
_SAYS_NOTHING: dict[str, tuple[Any, ...]] = {
    "uniqueItems": (False,), "not": (False,), "propertyNames": (True, {}, {"type": "string"}),
    "unevaluatedProperties": (True, {}), "unevaluatedItems": (True, {}), "dependentRequired": ({},),
    "dependentSchemas": ({},), "dependencies": ({},),
}  # fmt: skip

# What an error of the engine says -> keywords to leave out, the likeliest first.
_REASONS = (
    ("oneOf", ("oneOf",)),
    ("pattern", ("pattern", "patternProperties")),
    ("regex", ("pattern", "patternProperties")),
    ("Pointer", ("$ref",)),
    ("Resource", ("$ref", "$schema", "$id")),
    ("incompatible types", ("type", "allOf", "anyOf", "$ref", "enum", "const")),
    ("required property", ("required", "additionalProperties")),
    ("anyOf is empty", ("enum", "anyOf")),
    ("Unsatisfiable", ("allOf", "anyOf", "enum", "const", "required")),
)
_KEYWORD_NAMES = (
    "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minProperties", "maxProperties", "type", "properties", "required", "enum", "const", "items", "prefixItems",
    "additionalProperties", "format", "allOf", "anyOf", "$ref",
)  # fmt: skip
_SEARCH_S = 0.5  # for the keywords at fault; then the whole schema is relaxed


@dataclass(frozen=True, slots=True)
class PreparedSchema:
    """A schema's text as the engine takes it, and what was left out of it."""

    source: str
    warnings: tuple[str, ...]


def prepare(rule: Json, limits: GrammarLimits) -> PreparedSchema:
    """Check a schema. Raises InvalidRequestError under `strict` for what cannot be enforced, and for a schema nothing can satisfy."""
    return _Preparation(rule, limits).prepare()


@dataclass
class _Preparation:
    rule: Json
    limits: GrammarLimits
    warnings: list[str] = field(default_factory=list)

    def prepare(self) -> PreparedSchema:
        if self.rule.schema is False:
            raise self._error((), "false", "no value satisfies it")
        schema = self._within_limits()
        schema.pop("x-guidance", None)
        for path, node in list(subschemas(schema)):
            self._check_node(path, node)
        for path in leave_out_loops(schema):
            self._relax(path, "$ref", "it leads back to itself, and no value satisfies it")
        schema = self._bounded(self._until_accepted(schema))
        return PreparedSchema(self._source(schema), tuple(self.warnings))

    def _bounded(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema with unstated bounds, where the engine takes them."""
        copy: dict[str, Any] = json.loads(json.dumps(schema))
        for _, node in subschemas(copy):
            bound(node)
        return schema if self._fault(copy) else copy

    def _within_limits(self) -> dict[str, Any]:
        """A copy of the schema, relaxed to its type where it is too large."""
        schema = {} if self.rule.schema is True else self.rule.schema
        assert isinstance(schema, dict)
        if json_depth(schema) > self.limits.max_depth:
            return self._only_type(schema, f"it is nested more than {self.limits.max_depth} levels deep")
        try:
            text = json.dumps(schema, ensure_ascii=False)
            text.encode()
        except (TypeError, ValueError) as error:
            raise self._error((), "schema", f"it is no JSON: {error}") from None
        if len(text) > self.limits.max_bytes:
            return self._only_type(schema, f"it has more than {self.limits.max_bytes} bytes")
        if text.count('"$ref"') > self.limits.max_names:
            return self._only_type(schema, f"it has more than {self.limits.max_names} references")
        copy: dict[str, Any] = json.loads(text)
        return copy

    def _only_type(self, schema: dict[str, Any], reason: str) -> dict[str, Any]:
        self._relax((), "schema", reason)
        kind = schema.get("type")
        return {"type": kind} if kind in ("object", "array", "string", "number", "integer", "boolean") else {}

    # Keywords known by looking.

    def _check_node(self, path: Path, node: dict[str, Any]) -> None:
        for keyword in [keyword for keyword in node if keyword in UNKNOWN_TO_ENGINE]:
            value = node.pop(keyword)
            if value not in _SAYS_NOTHING.get(keyword, ()) and not (
                keyword in ("then", "else") and "if" not in node
            ):
                self._relax(path, keyword, "the keyword is not supported")
        if "$schema" in node and "json-schema.org" not in str(node["$schema"]):
            del node["$schema"]
        self._check_format(path, node)
        self._check_pattern(path, node)
        self._check_pattern_properties(path, node)
        for inclusive, limit in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if isinstance(node.get(limit), bool):  # as draft 4 wrote it
                exclusive = node.pop(limit)
                if exclusive and inclusive in node:
                    node[limit] = node.pop(inclusive)

    def _check_format(self, path: Path, node: dict[str, Any]) -> None:
        kinds = node.get("type", "string")
        says_something = "string" in kinds if isinstance(kinds, list | str) else True
        if "format" in node and node["format"] not in FORMATS:
            name = node.pop("format")
            if says_something:
                self._relax(path, "format", f"the format {str(name)[:64]!r} is not supported")

    def _check_pattern(self, path: Path, node: dict[str, Any]) -> None:
        if "pattern" in node and (reason := self._pattern_fault(node["pattern"])):
            del node["pattern"]
            self._relax(path, "pattern", reason, broken=is_malformed(reason))

    def _check_pattern_properties(self, path: Path, node: dict[str, Any]) -> None:
        patterns = node.get("patternProperties")
        if not isinstance(patterns, dict):
            return
        for pattern in list(patterns):
            if reason := self._pattern_fault(pattern):
                del patterns[pattern]
                # Names the pattern would have matched must stay allowed.
                node.pop("additionalProperties", None)
                self._relax(path, "patternProperties", reason, broken=is_malformed(reason))

    def _pattern_fault(self, pattern: Any) -> str:
        if not isinstance(pattern, str):
            return "the pattern is no string"
        return self.limits.check_pattern(pattern) or pattern_error(pattern)

    # Keywords found by asking.

    def _until_accepted(self, schema: dict[str, Any]) -> dict[str, Any]:
        started = time.monotonic()
        while fault := self._fault(schema):
            found = None
            if time.monotonic() - started < _SEARCH_S:
                found = self._without_cause(schema, fault)
            if found is None:
                return self._only_type(schema, fault)
            schema = found
        return schema

    def _without_cause(self, schema: dict[str, Any], fault: str) -> dict[str, Any] | None:
        """The schema without the first keyword whose absence changes what the engine says; None where none does."""
        for keyword in _suspects(fault):
            for path, node in subschemas(schema):
                if keyword not in node or (keyword == "type" and not path and node["type"] == "object"):
                    continue  # arguments stay an object whatever else is relaxed
                smaller = json.loads(json.dumps(schema))
                _leave_out(_at(smaller, path), keyword)
                if self._fault(smaller) != fault:
                    self._relax(path, keyword, fault)
                    return dict(smaller)
        return None

    def _fault(self, schema: dict[str, Any]) -> str:
        """Why the engine refuses a schema, or ""."""
        return engine_error(self._source(schema), self.limits)

    def _source(self, schema: dict[str, Any]) -> str:
        white = {"whitespace_flexible": False} if self.rule.compact else {"whitespace_pattern": WHITE_SPACE}
        # Without it a model that escapes a letter, as many do, would be driven to a control character.
        options = {**white, "json_allow_general_unicode_escapes": True}
        return json.dumps({"x-guidance": options, **schema}, ensure_ascii=False)

    # What is said of them.

    def _relax(self, path: Path, keyword: str, reason: str, *, broken: bool = False) -> None:
        if self.rule.strict or (broken and self.rule.refuse_broken):
            raise self._error(path, keyword, reason)
        self.warnings.append(f"{self._where(path)}: {keyword!r} is not enforced: {reason}")

    def _error(self, path: Path, keyword: str, reason: str) -> InvalidRequestError:
        where = self._where(path)
        return InvalidRequestError(f"{where}: {keyword!r} cannot be enforced: {reason}", param=where)

    def _where(self, path: Path) -> str:
        parts = [self.rule.path] if self.rule.path else []
        for step in path:
            if isinstance(step, int) and parts:
                parts[-1] += f"[{step}]"
            else:
                parts.append(str(step))
        return ".".join(parts) or "schema"


def _at(schema: Any, path: Path) -> dict[str, Any]:
    for step in path:
        schema = schema[step]
    found: dict[str, Any] = schema
    return found


def _leave_out(node: dict[str, Any], keyword: str) -> None:
    """Take a keyword from a schema; of `oneOf` only that no second branch may match."""
    value = node.pop(keyword)
    if keyword == "oneOf":
        if "anyOf" in node:
            node["allOf"] = [*node.get("allOf", ()), {"anyOf": value}]
        else:
            node["anyOf"] = value
    if keyword == "patternProperties":
        node.pop("additionalProperties", None)


def _suspects(fault: str) -> list[str]:
    """Keywords that can be what the engine complains of."""
    named = [name for name in _KEYWORD_NAMES if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", fault)]
    if "min/maxProperties" in fault:
        named = ["minProperties", "maxProperties"]
    implied = [keyword for text, keywords in _REASONS if text in fault for keyword in keywords]
    return list(dict.fromkeys([*named, *implied]))


@functools.lru_cache(maxsize=1024)
def pattern_error(pattern: str) -> str:
    """What is wrong with a regular expression in a schema, or ""."""
    return engine_error(json.dumps({"type": "string", "pattern": pattern}), GrammarLimits())


def is_malformed(reason: str) -> bool:
    """Whether a pattern is no regular expression at all, rather than one with a feature the engine lacks."""
    return not re.search("look-?around|backreference|not supported", reason)


def engine_error(schema_source: str, limits: GrammarLimits) -> str:
    """Why the engine refuses a schema, in one line, or ""."""
    failed, messages = LLMatcher.validate_grammar_with_warnings(
        LLMatcher.grammar_from_lark(f"start: j\nj: %json {schema_source}"), limits=limits.parser_limits()
    )
    return short_reason(messages[0]) if failed else ""


def short_reason(message: str) -> str:
    """The line of an engine's message that says why, without the grammar it quotes."""
    if "NoExtensionBias" in message:  # the engine's word for a place where no token can follow
        return "no text satisfies it"
    message = re.sub(r"^at \d+\(\d+\): ", "", message).removeprefix("failed to compile JSON schema: ")
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    reason = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), None)
    reason = reason or (lines[0] if lines else "it is refused")
    return reason if len(reason) <= 200 else reason[:197] + "..."
