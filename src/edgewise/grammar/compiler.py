"""GrammarCompiler: constraints as requests state them -> grammar states, cached by content, within limits.

Compiling is done by the caller's thread, which must not be the engine's: a large grammar takes up to a second (without the interpreter
lock). What comes of it is then copied for each sequence.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np
from llguidance import LLMatcher

from edgewise.core.errors import InvalidRequestError
from edgewise.core.grammar import (
    Constraint,
    FreeText,
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
from edgewise.core.requests import TokenConstraint
from edgewise.grammar.constraint import GrammarConstraint
from edgewise.grammar.free_text import answer
from edgewise.grammar.lark import GrammarText
from edgewise.grammar.limits import GBNF_RULE, LARK_RULE, GrammarLimits
from edgewise.grammar.schema import PreparedSchema, prepare, short_reason
from edgewise.grammar.thinking import ThinkingBudget
from edgewise.grammar.tokens import TokenTable, Vocabulary

T = TypeVar("T")

MAX_RULE_DEPTH = 50  # of rules in rules: what dialects and formats build is far flatter
TOO_COMPLEX = "it is too complex beside the marks that end such a text"


class CompiledConstraint:
    """A grammar ready to run. Immutable; any thread. `warnings` name the keywords that are not enforced."""

    def __init__(
        self,
        table: TokenTable,
        matcher: LLMatcher,
        constraint: Constraint,
        warnings: tuple[str, ...],
        spare: LLMatcher | None = None,
    ) -> None:
        """`spare`: of a grammar that asks less, to go on with where `matcher` grows too complex."""
        self.warnings = warnings
        self._table = table
        self._matcher = matcher  # never advanced, nor is the spare one
        self._spare = spare
        self._lock = threading.Lock()
        self._thinking = constraint.thinking

    def make(self) -> TokenConstraint:
        """The state at the beginning of an answer."""
        budget = None
        if self._thinking is not None and self._thinking.budget_tokens is not None:
            budget = ThinkingBudget(self._thinking, self._table)
        with self._lock:
            matcher = self._matcher.deep_copy()
            spare = self._spare and self._spare.deep_copy()
        return GrammarConstraint(matcher, self._table, budget, spare)


class GrammarCompiler:
    """Compiles for one tokenizer. Any thread; equal constraints and equal schemas are worked on once."""

    def __init__(
        self,
        tokenizer: Vocabulary,
        *,
        vocab_size: int | None = None,
        limits: GrammarLimits | None = None,
        cache_size: int = 64,
    ) -> None:
        """`vocab_size`: the model's, where it pads the tokenizer's. `cache_size`: grammars kept (a megabyte each, or several)."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._limits = limits or GrammarLimits()
        self._table: TokenTable | None = None
        self._lock = threading.Lock()
        self._compiled: _Cache[CompiledConstraint] = _Cache(cache_size)
        self._schemas: _Cache[PreparedSchema] = _Cache(16 * cache_size)

    def warm_up(self) -> None:
        """Do now what the first `compile` would: about a second for a large vocabulary."""
        self._tokens()

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        """Raises InvalidRequestError naming the field where the constraint is malformed, too large or cannot be satisfied."""
        try:
            key = _content(constraint)
            found = self._compiled.get(key)
            if found is None:
                self._limits.check_size(len(key), "grammar")
                found = self._compile(constraint)
                self._compiled.put(key, found)
            return found
        except InvalidRequestError as error:
            error.param = error.param or constraint.param or None
            raise

    def _compile(self, constraint: Constraint) -> CompiledConstraint:
        """What raw text has to match can be more than the grammar engine carries; that alone is let go then."""
        bound = [rule for rule in rules_of(constraint.body) if isinstance(rule, RawText) and rule.patterns]
        if not bound:
            return CompiledConstraint(self._tokens(), *self._built(constraint))
        may_go = {pattern for rule in bound if not rule.strict for pattern in rule.patterns}
        may_go -= {pattern for rule in bound if rule.strict for pattern in rule.patterns}
        try:
            found = self._built(constraint)
        except InvalidRequestError:
            found = self._built_with_less(constraint, self._too_complex(bound), may_go)
        spare = self._built(constraint, may_go)[0] if may_go else None
        return CompiledConstraint(self._tokens(), *found, spare)

    def _built_with_less(
        self, constraint: Constraint, first: AbstractSet[str], then: AbstractSet[str]
    ) -> tuple[LLMatcher, Constraint, tuple[str, ...]]:
        """Without the patterns that fail alone; or without all that may go, where each alone would do and all together do not."""
        try:
            return self._built(constraint, first)
        except InvalidRequestError:
            return self._built(constraint, then)

    def _too_complex(self, bound: Iterable[RawText]) -> set[str]:
        """The patterns of those raw texts that fail even alone. Raises InvalidRequestError where one of them is strict."""
        found: set[str] = set()
        for rule in dict.fromkeys(bound):
            alone = replace(rule, strict=False)
            try:
                self._built(Constraint(Sequence((alone, *map(Text, rule.until[:1])))))
            except InvalidRequestError:
                list(_relaxed(Relaxed(rule.path, ("pattern",), TOO_COMPLEX, rule.strict)))
                found.update(rule.patterns)
        return found

    def _built(
        self, constraint: Constraint, let_go: AbstractSet[str] = frozenset()
    ) -> tuple[LLMatcher, Constraint, tuple[str, ...]]:
        """The grammar without the patterns of raw text in `let_go`, and its warnings."""
        warnings: dict[str, None] = {}

        def schema_source(rule: Json) -> str:
            prepared = self._prepared(rule)
            warnings.update(dict.fromkeys(prepared.warnings))
            return prepared.source

        def usable_patterns(rule: RawText) -> list[str]:
            faults = {p: TOO_COMPLEX if p in let_go else self._pattern_fault(p) for p in rule.patterns}
            for fault in filter(None, faults.values()):
                warnings.update(dict.fromkeys(_relaxed(Relaxed(rule.path, ("pattern",), fault, rule.strict))))
            return [pattern for pattern, fault in faults.items() if not fault]

        patterns = {rule.pattern: rule for rule in rules_of(constraint.body) if isinstance(rule, Regex)}
        for rule in (*patterns.values(), *(r for r in rules_of(constraint.body) if not isinstance(r, Regex))):
            self._check(rule)
            if isinstance(rule, Relaxed):
                warnings.update(dict.fromkeys(_relaxed(rule)))
        table = self._tokens()
        grammar = GrammarText(table, schema_source, usable_patterns)
        source = grammar.source(answer(grammar, constraint))
        matcher = LLMatcher(table.engine, source, log_level=0, limits=self._limits.parser_limits())
        self._check_start(matcher)
        return matcher, constraint, tuple(warnings)

    def _check(self, rule: Rule) -> None:
        match rule:
            case Regex(pattern):
                if reason := self._pattern_fault(pattern):
                    raise InvalidRequestError(f"the regular expression cannot be used: {reason}")
            case Lark(source):
                self._limits.check_grammar(source, "Lark grammar", LARK_RULE)
            case Gbnf(source):
                self._limits.check_grammar(source, "GBNF grammar", GBNF_RULE)
            case _:
                pass

    def _pattern_fault(self, pattern: str) -> str:
        """Why a regular expression cannot be used, or ""."""
        return self._limits.check_pattern(pattern) or _regex_error(pattern, self._limits)

    def _check_start(self, matcher: LLMatcher) -> None:
        """Raises InvalidRequestError where nothing can be written, or text that never ends has to be. Computing a mask warms
        what copies share."""
        mask = b"" if matcher.is_error() else matcher.compute_bitmask()
        ahead = matcher.deep_copy()
        if not matcher.is_error():
            ahead.compute_ff_tokens()
        for each in (matcher, ahead):
            if each.is_error():
                raise InvalidRequestError(f"the grammar cannot be used: {short_reason(each.get_error())}")
        if not np.frombuffer(mask, np.uint8).any():
            raise InvalidRequestError("the grammar cannot be used: no text satisfies it")

    def _prepared(self, rule: Json) -> PreparedSchema:
        key = _content(rule)
        found = self._schemas.get(key)
        if found is None:
            found = prepare(rule, self._limits)
            self._schemas.put(key, found)
        return found

    def _tokens(self) -> TokenTable:
        with self._lock:
            if self._table is None:
                self._table = TokenTable(self._tokenizer, self._vocab_size)
            return self._table


class _Cache(Generic[T]):
    """The last `size` things used, by content. Any thread."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, T] = OrderedDict()

    def get(self, key: str) -> T | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: str, value: T) -> None:
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)


def rules_of(body: Rule | FreeText) -> Iterator[Rule]:
    """Every rule in a body. Raises InvalidRequestError where they are nested out of bounds."""
    todo: list[tuple[Rule, int]]
    if isinstance(body, FreeText):
        todo = [(region.rule, 0) for region in body.regions]
    else:
        todo = [(body, 0)]
    while todo:
        rule, depth = todo.pop()
        if depth > MAX_RULE_DEPTH:
            raise InvalidRequestError(f"the grammar is nested more than {MAX_RULE_DEPTH} levels deep")
        yield rule
        match rule:
            case Sequence(rules) | OneOf(rules):
                inner = rules
            case Repeat(one, _, _, joint):
                inner = (one,) if joint is None else (one, joint)
            case _:
                inner = ()
        todo += [(one, depth + 1) for one in inner]


def _relaxed(rule: Relaxed) -> Iterator[str]:
    """Warnings for what is not enforced. Raises InvalidRequestError under `strict`, as schemas do."""
    for keyword in rule.keywords:
        if rule.strict:
            message = f"{rule.path}: {keyword!r} cannot be enforced: {rule.reason}"
            raise InvalidRequestError(message, param=rule.path)
        yield f"{rule.path}: {keyword!r} is not enforced: {rule.reason}"


def _content(value: Constraint | Json) -> str:
    """A text that is equal for equal constraints; the order of a schema's keys counts."""
    try:
        return repr(value)
    except RecursionError:
        raise InvalidRequestError("the grammar or its schema is nested too deeply") from None


def _regex_error(pattern: str, limits: GrammarLimits) -> str:
    failed, messages = LLMatcher.validate_grammar_with_warnings(
        LLMatcher.grammar_from_regex(pattern), limits=limits.parser_limits()
    )
    return short_reason(messages[0]) if failed else ""
