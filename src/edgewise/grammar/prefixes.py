"""Rules that begin with a known text: what is left of a rule once that text is written, and triggers grouped by how they begin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from edgewise.core.grammar import OneOf, Repeat, Rule, Sequence, Text, Triggered


def strip(rule: Rule, prefix: str) -> Rule | None:
    """What may follow once `prefix` is written of `rule`; None where the rule does not begin so."""
    if not prefix:
        return rule
    match rule:
        case Text(text):
            return Text(text[len(prefix) :]) if text.startswith(prefix) else None
        case OneOf(rules):
            left = tuple(rest for one in rules if (rest := strip(one, prefix)) is not None)
            return OneOf(left) if len(left) > 1 else left[0] if left else None
        case Sequence(rules):
            return _strip_sequence(rules, prefix)
        case Repeat(one, low, high, joint) if low > 0:
            again = one if joint is None else Sequence((joint, one))
            return strip(Sequence((one, Repeat(again, low - 1, None if high is None else high - 1))), prefix)
        case _:
            return None


def _strip_sequence(rules: tuple[Rule, ...], prefix: str) -> Rule | None:
    if not rules:
        return None
    first, rest = rules[0], rules[1:]
    if isinstance(first, Text) and prefix.startswith(first.text):
        return strip(Sequence(rest), prefix[len(first.text) :])
    if isinstance(first, Sequence):
        return _strip_sequence((*first.rules, *rest), prefix)
    if (left := strip(first, prefix)) is not None:
        return Sequence((left, *rest))
    if isinstance(first, OneOf):  # its alternatives end within the prefix
        return strip(OneOf(tuple(Sequence((one, *rest)) for one in first.rules)), prefix)
    return None


def spellings(region: Triggered) -> Iterator[tuple[str, Rule]]:
    """Each text that may trigger a region, with the rule that begins with it."""
    yield region.trigger, region.rule
    rest = strip(region.rule, region.trigger) if region.also else None
    for text in region.also:
        if rest is None:
            raise ValueError(f"a rule triggered by {region.trigger!r} does not begin with it")
        yield text, Sequence((Text(text), rest))


@dataclass(frozen=True, slots=True)
class Opening:
    """A text that begins something, and what may follow it. No `rest`: nothing may, the text is banned."""

    text: str
    rest: Rule | None


def openings(rules: Iterable[tuple[str, Rule]], banned: Iterable[str] = ()) -> list[Opening]:
    """One opening for each text of which no other is a beginning, with the rules of the longer ones joined to it.

    Raises ValueError for a rule that does not begin with its text.
    """
    pairs: list[tuple[str, Rule | None]] = [*rules, *((text, None) for text in banned)]
    found: dict[str, list[Rule] | None] = {}
    for text, rule in sorted(pairs, key=lambda pair: (len(pair[0]), pair[1] is not None)):
        begin = next((known for known in found if text.startswith(known)), text)
        rests = found.setdefault(begin, None if rule is None else [])
        if rule is None or rests is None:  # banned texts win over rules that begin with them
            continue
        rest = strip(rule, begin)
        if rest is None:
            raise ValueError(f"a rule triggered by {text!r} does not begin with {begin!r}")
        rests.append(rest)
    return [Opening(text, None if rests is None else OneOf(tuple(rests))) for text, rests in found.items()]
