"""Rules as a grammar in llguidance's Lark dialect.

Its parser has two levels. Terminals (upper case) are regular expressions that a lexer matches greedily and without looking back: while any
terminal that may stand here can go on, those that have ended are forgotten. So terminals that may stand in one place must not end
inside one another. Fixed texts are written as a terminal a character: what they share they share to the last character. Raw text is
one terminal together with the mark that ends it, which cannot go on after it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator

from llguidance import regex_to_lark

from edgewise.core.grammar import (
    Gbnf,
    Json,
    Lark,
    OneOf,
    RawText,
    Regex,
    Relaxed,
    Repeat,
    Rule,
    Sequence,
    Text,
)
from edgewise.grammar.gbnf import gbnf_to_lark
from edgewise.grammar.raw_text import Item, ends_of
from edgewise.grammar.tokens import TokenTable

ANYTHING = "/(?s:.*)/"
SOMETHING = "/(?s:.+)/"
MAX_SPELLED = 256  # characters of a text that are terminals of their own
MAX_BRANCHES = 64  # texts to choose from that are spelled out: every one takes part in every step


class GrammarText:
    """Collects the parts of one grammar; equal parts are written once.

    `schema_source` gives the schema of a Json rule in the form the engine takes, `usable_patterns` those patterns of raw text that it takes.
    """

    def __init__(
        self,
        table: TokenTable,
        schema_source: Callable[[Json], str],
        usable_patterns: Callable[[RawText], Iterable[str]],
    ) -> None:
        self.table = table
        self._schema_source = schema_source
        self._usable_patterns = usable_patterns
        self._names: dict[str, str] = {}  # a definition without its name -> its name
        self._lines: list[str] = []
        self._written: dict[int, tuple[Rule, str]] = {}  # by identity, which holds while the rule is kept
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
        """A rule as an expression to be used in another; one that several others hold is written once."""
        known = self._written.get(id(rule))
        if known is None:
            known = self._written[id(rule)] = rule, self._expression(rule)
        return known[1]

    def _expression(self, rule: Rule) -> str:
        match rule:
            case Text() | RawText() | Regex():
                return f"({self._sequence((rule,))})"
            case Json():
                return self.rule(f"%json {self._schema_source(rule)}")
            case Sequence(rules):
                return self.rule(self._sequence(rules))
            case OneOf(rules):
                if (texts := self._many_texts(rules)) is not None:
                    return self.terminal(" | ".join(map(quoted, texts)))
                return self.rule(" | ".join(map(self.expression, rules)))
            case Repeat(one, low, high, joint):
                between = None if joint is None else self.expression(joint)
                return self.rule(repeated(self.expression(one), low, high, between))
            case Lark(source):
                return self._other(source)
            case Gbnf(source):
                return self._other(gbnf_to_lark(source))
            case Relaxed():
                return '""'

    def _many_texts(self, rules: tuple[Rule, ...]) -> list[str] | None:
        """The texts of a choice of so many that they must be one terminal; None for any other choice."""
        texts = [rule.text for rule in rules if isinstance(rule, Text) and rule.text]
        if len(texts) < len(rules) or len(texts) <= MAX_BRANCHES:
            return None
        plain = all(isinstance(piece, str) for text in texts for piece in self.table.pieces(text))
        return texts if plain else None

    def _sequence(self, rules: Iterable[Rule]) -> str:
        parts: list[str] = []
        items = list(self._items(rules))
        while items:
            item = items.pop(0)
            if isinstance(item, int):
                parts.append(token(item))
            elif isinstance(item, Text):
                parts += spelled(item.text)
            elif isinstance(item, RawText):
                parts.append(self._raw_text(item, items))
            elif isinstance(item, Regex):
                parts.append(self._pattern(item, items))
            else:
                parts.append(self.expression(item))
        return " ".join(parts) or '""'

    def _items(self, rules: Iterable[Rule]) -> Iterator[Item]:
        """The rules in order, inner sequences in their place, texts cut at control tokens."""
        for rule in rules:
            if isinstance(rule, Sequence):
                yield from self._items(rule.rules)
            elif isinstance(rule, Text):
                yield from (p if isinstance(p, int) else Text(p) for p in self.table.pieces(rule.text))
            elif not isinstance(rule, Relaxed):
                yield rule

    def _pattern(self, first: Regex, items: list[Item]) -> str:
        """A pattern with the texts that follow it, which it might swallow; they are taken from `items`."""
        parts = [regex(first.pattern)]
        while items and isinstance(text := items[0], Text):
            parts.append(quoted(text.text))
            del items[0]
        return self.terminal(" ".join(parts))

    def _raw_text(self, raw: RawText, items: list[Item]) -> str:
        """Raw text with what ends it; items that belong to its ends are taken from `items`."""
        patterns = " & ".join(map(regex, self._usable_patterns(raw)))
        clean = without(f"({patterns})" if patterns else ANYTHING, raw.until)
        ends, num_taken = ends_of(raw, items, self._items)
        del items[:num_taken]
        branches = []
        for end in ends:
            lexeme = clean
            if end.text:
                lexeme = f"({clean} {quoted(end.text)})"
                if raw.until:  # not past the first mark
                    marks = " | ".join(map(quoted, raw.until))
                    lexeme += f" & ~({ANYTHING} ({marks}) {SOMETHING})"
            branches.append(" ".join([self.terminal(lexeme), *self._rest(end.rest)]))
        return "(" + " | ".join(branches) + ")"

    def _rest(self, items: tuple[Item, ...]) -> Iterator[str]:
        for item in items:
            yield token(item) if isinstance(item, int) else self.expression(item)


def spelled(text: str) -> Iterator[str]:
    """A text as terminals of one character."""
    yield from map(quoted, text[:MAX_SPELLED])
    if len(text) > MAX_SPELLED:
        yield quoted(text[MAX_SPELLED:])


@functools.lru_cache(maxsize=4096)
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
