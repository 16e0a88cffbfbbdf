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
    if len(flat) < 2:
        return flat[0] if flat else NOTHING
    return Sequence(tuple(flat))


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
    if not any(required for _, required in items):
        return one_of([_some(items, joint), NOTHING])
    first = next(index for index, (_, required) in enumerate(items) if required)
    before = [optional(sequence(rule, Text(joint))) for rule, _ in items[:first]]
    return sequence(*before, items[first][0], *_more(items[first + 1 :], joint))


def _some(items: Seq[tuple[Rule, bool]], joint: str) -> Rule:
    """One or more of items of which none is required. Split in halves, rules stay small and flat for any number."""
    if len(items) == 1:
        return items[0][0]
    half = len(items) // 2
    return one_of(
        [sequence(_some(items[:half], joint), *_more(items[half:], joint)), _some(items[half:], joint)]
    )


def _more(items: Seq[tuple[Rule, bool]], joint: str) -> list[Rule]:
    """Items after another."""
    rules = [(sequence(Text(joint), rule), required) for rule, required in items]
    return [rule if required else optional(rule) for rule, required in rules]
