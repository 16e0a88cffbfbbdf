"""How large a grammar may be. The engine is native code: what could overflow its stack or burn minutes must not reach it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llguidance import LLParserLimits

from edgewise.core.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """Bounds of one request's grammar. Exceeding one is an InvalidRequestError, or relaxes the schema it happens in.

    max_names: rules, or `$ref`s of a schema. The engine resolves a chain of them recursively; 4,000 overflow an 8 MiB stack.
    lexer_fuel: bounds the time spent on regular expressions, about 50,000 units a millisecond while compiling.
    step_fuel: the same for one mask, about 14,000 a millisecond. A step that runs out of it fails its request.
    """

    max_bytes: int = 1 << 20  # of all schemas, patterns and grammars of a request together
    max_depth: int = 64  # of a schema: objects and arrays around one another
    max_pattern_chars: int = 8192
    max_pattern_depth: int = 100  # of parentheses
    max_names: int = 1000
    lexer_fuel: int = 500_000
    step_fuel: int = 200_000

    def parser_limits(self) -> LLParserLimits:
        return LLParserLimits(
            initial_lexer_fuel=self.lexer_fuel, step_lexer_fuel=self.step_fuel, verbose_errors=False
        )

    def check_pattern(self, pattern: str) -> str:
        """Why a regular expression is too large or would not stay by itself, or ""."""
        if len(pattern) > self.max_pattern_chars:
            return f"the pattern has {len(pattern)} characters; at most {self.max_pattern_chars} are allowed"
        if _depth(pattern) > self.max_pattern_depth:
            return f"the pattern is nested more than {self.max_pattern_depth} levels deep"
        if (len(pattern) - len(pattern.rstrip("\\"))) % 2:  # it would escape what is written round it
            return "the pattern ends in a backslash"
        return ""

    def check_grammar(self, source: str, what: str, rule_mark: re.Pattern[str]) -> None:
        """Raises InvalidRequestError for a grammar with too many rules or too deeply nested ones."""
        self.check_size(len(source), what)
        if _depth(source) > self.max_pattern_depth:
            raise InvalidRequestError(f"the {what} is nested more than {self.max_pattern_depth} levels deep")
        rules = sum(1 for _ in rule_mark.finditer(source))
        if rules > self.max_names:
            raise InvalidRequestError(
                f"the {what} has {rules} rules; at most {self.max_names} are allowed", param=None
            )

    def check_size(self, size: int, what: str) -> None:
        if size > self.max_bytes:
            raise InvalidRequestError(f"the {what} has {size} bytes; at most {self.max_bytes} are allowed")


LARK_RULE = re.compile(r"^[ \t]*[?!_A-Za-z][\w-]*[ \t]*(?:\[[^\]\n]*\])?[ \t]*(?:\.[0-9]+)?[ \t]*:", re.M)
GBNF_RULE = re.compile("::=")


def _depth(text: str) -> int:
    """The deepest nesting of round brackets, escaped ones left out: an upper bound for expressions with literals in them."""
    depth = most = 0
    for match in re.finditer(r"\\.|[()]", text, re.S):
        if match.group() == "(":
            depth += 1
            most = max(most, depth)
        elif match.group() == ")":
            depth = max(depth - 1, 0)
    return most


def json_depth(value: Any) -> int:
    """How many objects and arrays stand round the innermost value. Not recursive."""
    deepest, todo = 0, [(value, 1)]
    while todo:
        one, depth = todo.pop()
        deepest = max(deepest, depth)
        todo += [(inner, depth + 1) for inner in _children(one)]
    return deepest - 1


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value
