"""Rules as a grammar in llguidance's Lark dialect.

Its parser has two levels. Terminals (upper case) are regular expressions that the lexer matches greedily, without looking back: raw
text followed by its end mark must therefore be one terminal, in which the mark cannot be swallowed. So every stretch of a rule that
is regular becomes one terminal; only JSON, other grammars, control tokens and what holds them are rules (lower case).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

from llguidance import regex_to_lark

from edgewise.core.grammar import Gbnf, Json, Lark, OneOf, RawText, Regex, Repeat, Rule, Sequence, Text
from edgewise.grammar.gbnf import gbnf_to_lark
from edgewise.grammar.tokens import TokenTable

ANYTHING = "/(?s:.*)/"
SOMETHING = "/(?s:.+)/"


class GrammarText:
    """Collects the parts of one grammar; equal parts are written once.

    `schema_source` gives the schema of a Json rule in the form the engine takes.
    """

    def __init__(self, table: TokenTable, schema_source: Callable[[Json], str]) -> None:
        self.table = table
        self._schema_source = schema_source
        self._names: dict[str, str] = {}  # a definition without its name -> its name
        self._lines: list[str] = []
        self._others: list[dict[str, str]] = []

    def source(self, start: str) -> str:
        """The whole grammar, whose answer is the expression `start`."""
        main = {"lark_grammar": "\n".join([f"start: {start}", *self._lines])}
        return json.dumps({"grammars": [main, *self._others]})

    def terminal(self, expression: str) -> str:
        """The name of a terminal."""
        return self._define("T", ": " + expression)

    def rule(self, expression: str, options: str = "") -> str:
        """The name of a rule. `options`: such as "[lazy]"."""
        return self._define("r", f"{options}: {expression}")

    def _define(self, prefix: str, definition: str) -> str:
        name = self._names.get(prefix + definition)
        if name is None:
            name = f"{prefix}{len(self._names)}"
            self._names[prefix + definition] = name
            self._lines.append(name + definition)
        return name

    def _other(self, lark: str) -> str:
        """A reference to a grammar of its own, with its own names."""
        name = f"g{len(self._others)}"
        self._others.append({"name": name, "lark_grammar": lark})
        return "@" + name

    def expression(self, rule: Rule) -> str:
        """A rule as an expression to be used in another."""
        if (regular := self.regular(rule)) is not None:
            return self.terminal(regular)
        match rule:
            case Text():
                return "(" + self._sequence((rule,)) + ")"
            case Json():
                return self.rule(f"%json {self._schema_source(rule)}")
            case Sequence(rules):
                return self.rule(self._sequence(rules))
            case OneOf(rules):
                return self.rule(self._alternatives(rules))
            case Repeat(one, low, high, joint):
                between = None if joint is None else self.expression(joint)
                return self.rule(repeated(self.expression(one), low, high, between))
            case Lark(source):
                return self._other(source)
            case Gbnf(source):
                return self._other(gbnf_to_lark(source))
            case Regex() | RawText():
                raise AssertionError("a regular rule")

    def regular(self, rule: Rule) -> str | None:
        """A rule as an expression within a terminal; None where it is more than a regular expression."""
        match rule:
            case Text(text):
                return quoted(text) if self._is_plain(text) else None
            case Regex(pattern):
                return regex(pattern)
            case RawText(until):
                return without(ANYTHING, until)
            case Sequence(rules):
                return self._all_regular(rules, " ")
            case OneOf(rules):
                return self._all_regular(rules, " | ")
            case Repeat(one, low, high, joint):
                part, between = self.regular(one), None if joint is None else self.regular(joint)
                if part is None or (joint is not None and between is None):
                    return None
                return repeated(part, low, high, between)
            case _:
                return None

    def _all_regular(self, rules: tuple[Rule, ...], joint: str) -> str | None:
        parts = [self.regular(rule) for rule in rules]
        if None in parts:
            return None
        return "(" + joint.join(part for part in parts if part is not None) + ")" if parts else '""'

    def _is_plain(self, text: str) -> bool:
        return not any(isinstance(piece, int) for piece in self.table.pieces(text))

    def _sequence(self, rules: Iterable[Rule]) -> str:
        """Neighbours that are regular become one terminal: the lexer cannot look from one into the next."""
        parts: list[str] = []
        run: list[str] = []
        for item in self._items(rules):
            part = None if isinstance(item, int) else self.regular(item)
            if part is not None:
                run.append(part)
                continue
            if run:
                parts.append(self.terminal(" ".join(run)))
                run = []
            parts.append(token(item) if isinstance(item, int) else self.expression(item))
        if run:
            parts.append(self.terminal(" ".join(run)))
        return " ".join(parts)

    def _items(self, rules: Iterable[Rule]) -> Iterator[Rule | int]:
        """The rules in order, inner sequences in their place, texts cut at control tokens."""
        for rule in rules:
            if isinstance(rule, Sequence):
                yield from self._items(rule.rules)
            elif isinstance(rule, Text):
                yield from (p if isinstance(p, int) else Text(p) for p in self.table.pieces(rule.text))
            else:
                yield rule

    def _alternatives(self, rules: tuple[Rule, ...]) -> str:
        regular = [part for rule in rules if (part := self.regular(rule)) is not None]
        others = [self.expression(rule) for rule in rules if self.regular(rule) is None]
        return " | ".join([*([self.terminal(" | ".join(regular))] if regular else []), *others])


def quoted(text: str) -> str:
    """A literal."""
    return json.dumps(text, ensure_ascii=False)


def token(token_id: int) -> str:
    """A control token."""
    return f"<[{token_id}]>"


def tokens(ids: list[int]) -> str:
    """Any one of some control tokens."""
    return "<[" + ",".join(map(str, ids)) + "]>"


def regex(pattern: str) -> str:
    """A regular expression that must match all of a text, where anchors at its ends say nothing."""
    body = pattern.removeprefix("^")
    if body.endswith("$") and (len(body) - len(body[:-1].rstrip("\\"))) % 2 == 1:
        body = body[:-1]
    if not body:
        return '""'
    return "/(?:" + regex_to_lark(body, "").replace("\n", "\\n") + ")/"


def without(expression: str, texts: Iterable[str]) -> str:
    """`expression`, restricted to what holds none of `texts`."""
    inside = " | ".join(map(quoted, texts))
    return f"({expression} & ~({ANYTHING} ({inside}) {ANYTHING}))" if inside else expression


def repeated(expression: str, low: int, high: int | None, joint: str | None = None) -> str:
    """`expression` from `low` to `high` times with `joint` between."""
    if high == 0:
        return '""'
    if joint is None:
        return _times(f"({expression})", low, high)
    more = _times(f"({joint} {expression})", max(low - 1, 0), None if high is None else high - 1)
    return f"({expression} {more})" + ("?" if low == 0 else "")


def _times(expression: str, low: int, high: int | None) -> str:
    if high == 0:
        return '""'
    if (low, high) == (1, 1):
        return expression
    if high is None:
        return expression + ("*" if low == 0 else "+" if low == 1 else f"{{{low},}}")
    return expression + ("?" if (low, high) == (0, 1) else f"{{{low},{high}}}")
