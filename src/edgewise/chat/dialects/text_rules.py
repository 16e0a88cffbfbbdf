"""What a schema asks of texts, in notations that write them as they stand; and the note of what a notation cannot hold to."""

from __future__ import annotations

import re
from collections.abc import Sequence as Seq
from typing import Any

from edgewise.chat.dialects.rules import NOTHING, sequence
from edgewise.core.grammar import RawText, Relaxed, Rule

UNBOUND = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "array": ("uniqueItems", "contains", "prefixItems"),
    "object": ("minProperties", "maxProperties", "patternProperties", "propertyNames", "dependentRequired"),
    "": ("allOf", "not", "if"),
}
"""Keywords that rules of notations other than JSON do not hold to, by the type they are about."""


MAX_COUNTED = 2000  # characters
ANY = "(?s:.*)"
ANCHOR = re.compile(
    r"(?<!\\)\$|(?<![\\\[])\^|\\[bBAzZ]"
)  # a sign in a class that looks like one counts as one
BRACKET = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|[()|]", re.DOTALL)


def raw_text(schema: Any, until: tuple[str, ...], path: str, *, strict: bool) -> Rule:
    """A string of a schema as it stands, up to one of `until`, with a note of the keywords that are let go."""
    given = schema if isinstance(schema, dict) else {}
    patterns, held = [], []
    low, high = given.get("minLength", 0), given.get("maxLength")
    if _is_length(low) and (high is None or (_is_length(high) and low <= high)) and (low or high is not None):
        patterns.append(f"(?s:.{{{low},{'' if high is None else high}}})")
        held += ["minLength", "maxLength"]
    if whole := whole_pattern(given.get("pattern")):
        patterns.append(whole)
        held.append("pattern")
    note = relaxed(schema, "string", path, strict=strict, held=held)
    return sequence(note, RawText(until, tuple(patterns), path if patterns else "", strict))


def _is_length(value: Any) -> bool:
    """Whether a bound can be counted without a grammar that is all counting."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNTED


def whole_pattern(pattern: Any) -> str:
    """What a pattern says of the whole of a text; "" where its anchors are not those of the whole."""
    if not isinstance(pattern, str) or not pattern:
        return ""
    inner = pattern.removeprefix("^")
    is_end = inner.endswith("$") and (len(inner) - len(inner[:-1].rstrip("\\"))) % 2 == 1
    inner = inner[:-1] if is_end else inner
    is_anchored = inner != pattern
    if ANCHOR.search(inner) or (is_anchored and "|" in inner and not _is_one_group(inner)):
        return ""  # an anchor inside, or of one of several choices
    before, after = "" if pattern.startswith("^") else ANY, "" if is_end else ANY
    return f"{before}(?:{inner}){after}"


def _is_one_group(pattern: str) -> bool:
    """Whether all of a pattern stands in one pair of brackets, so that its choices are inside."""
    depth = 0
    for match in BRACKET.finditer(pattern):
        depth += {"(": 1, ")": -1}.get(match.group(), 0)
        if depth == 0 and match.group() in ("(", ")", "|") and match.end() < len(pattern):
            return False
    return pattern.startswith("(") and depth == 0


def relaxed(schema: Any, kind: str, path: str, *, strict: bool, held: Seq[str] = ()) -> Rule:
    """A note of the keywords about values of `kind` that the rule beside it lets go; nothing where there are none.

    `held`: those that it holds to.
    """
    given = schema if isinstance(schema, dict) else {}
    found = tuple(
        name
        for name in (*UNBOUND.get(kind, ()), *UNBOUND[""])
        if name not in held and given.get(name) not in (None, False)
    )
    return Relaxed(path, found, "this model does not write calls as JSON", strict) if found else NOTHING
