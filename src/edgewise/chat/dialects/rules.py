"""Small constructions over grammar rules that several shapes share."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from edgewise.core.grammar import OneOf, Repeat, Rule, Sequence, Text

NOTHING = Text("")


def sequence(*rules: Rule) -> Rule:
    """The rules one after another, flat, neighbouring texts joined."""
    flat: list[Rule] = []
    for rule in rules:
        for part in rule.rules if isinstance(rule, Sequence) else (rule,):
            last = flat[-1] if flat else None
            if isinstance(part, Text) and isinstance(last, Text):
                flat[-1] = Text(last.text + part.text)
            elif part != NOTHING:
                flat.append(part)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def one_of(rules: Seq[Rule]) -> Rule:
    """Any of the rules, each once."""
    found: list[Rule] = []
    for rule in rules:
        if rule not in found:
            found.append(rule)
    return found[0] if len(found) == 1 else OneOf(tuple(found))


def optional(rule: Rule) -> Rule:
    """The rule or nothing."""
    return Repeat(rule, 0, 1)


def listed(items: Seq[tuple[Rule, bool]], joint: str) -> Rule:
    """(rule, required) pairs in order, those that are not required perhaps missing, `joint` between those that are there."""
    comma = Text(joint)
    first = next((index for index, (_, required) in enumerate(items) if required), None)
    if first is None:
        return one_of([*(_from(items[index:], comma) for index in range(len(items))), NOTHING])
    before = [optional(sequence(rule, comma)) for rule, _ in items[:first]]
    return sequence(*before, _from(items[first:], comma))


def _from(items: Seq[tuple[Rule, bool]], comma: Rule) -> Rule:
    """The first of the items for certain, the others after it."""
    later = [
        sequence(comma, rule) if required else optional(sequence(comma, rule)) for rule, required in items[1:]
    ]
    return sequence(items[0][0], *later)
