"""What a schema asks of texts, in notations that write them as they stand; and the note of what a notation cannot hold to."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Any

from edgewise.chat.anchors import Choice, choices
from edgewise.chat.dialects.rules import NOTHING, sequence
from edgewise.core.grammar import RawText, Relaxed, Rule

UNBOUND = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "array": ("uniqueItems", "contains", "prefixItems"),
    "object": ("minProperties", "maxProperties", "patternProperties", "propertyNames", "dependentRequired"),
    "": ("allOf", "not", "if"),
}
"""Keywords that rules of notations other than JSON do not hold to, by the type they are about."""


MAX_COUNTED = 32
"""Characters that are counted. Each count is a state beside each of the marks that end such a text: at 60, two texts of one tool are more
than the grammar engine finds its way through at once, and a mask takes several milliseconds."""
ANY = "(?s:.*)"


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
    """What a pattern says of the whole of a text; "" where it is anchored inside."""
    if not isinstance(pattern, str) or not pattern:
        return ""
    found = choices(pattern)
    return "" if any(choice.is_anchored_inside for choice in found) else "|".join(map(_whole, found))


def _whole(choice: Choice) -> str:
    return f"{'' if choice.starts else ANY}(?:{choice.inner}){'' if choice.ends else ANY}"


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
