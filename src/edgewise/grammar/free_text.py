"""Free text with bound regions, and thinking, as grammars.

An answer is seen as stretches of text with control tokens between them. What a stretch may hold depends on what stands before it: at the
beginning of the answer it must not begin as a bare call does; after a control token that opens a region it must not begin as that
region does. Within a stretch the first occurrence of a trigger, found by a lazy lexeme, ends the free text, in the middle of a token
if need be. No two stretches meet without something between them: the lexer would let a trigger fall apart at the border.
A region that begins an answer may follow another at once; where other text stands between, what looks like one is text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgewise.core.grammar import Constraint, FreeText, Regex, Rule, Sequence, Text, Thinking, Triggered
from edgewise.grammar.lark import ANYTHING, SOMETHING, GrammarText, quoted, repeated, token, tokens, without
from edgewise.grammar.prefixes import Opening, openings, spellings

WHITE = r"[ \t\r\n]*"
BETWEEN = rf"{WHITE}[,;]?{WHITE}"  # regions that follow one another at once
SOME_WHITE = r"[ \t\r\n]{1,8}"  # between thinking and what is bound: a few line breaks, never an endless run


def answer(grammar: GrammarText, constraint: Constraint) -> str:
    """A whole answer, thinking included, as an expression. Raises ValueError for a trigger its rule does not begin with."""
    body, thinking = constraint.body, constraint.thinking
    if thinking is None:
        return _body(grammar, body)
    after = _body(grammar, body)
    if not isinstance(body, FreeText):
        after = f"{grammar.terminal('/' + SOME_WHITE + '/')}? {after}"
    thought = grammar.rule(f"{_thought(grammar, thinking)} {after}")
    if thinking.already_open or not thinking.start:
        return thought if thinking.already_open else _body(grammar, body)
    start = grammar.expression(Sequence((Regex(WHITE), Text(thinking.start))))
    if isinstance(body, FreeText):
        direct = _FreeText(grammar, body, not_begun_by=thinking.start).answer()
    else:
        direct = grammar.expression(body)
    return f"{start} {thought} | {direct}"


def _body(grammar: GrammarText, body: Rule | FreeText) -> str:
    if isinstance(body, FreeText):
        return grammar.rule(_FreeText(grammar, body).answer())
    return grammar.expression(body)


def _thought(grammar: GrammarText, thinking: Thinking) -> str:
    """Free text up to and including the end mark."""
    region = Triggered(thinking.end, Text(thinking.end))
    return _FreeText(grammar, FreeText((region,), max_regions=1)).up_to_region()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a stretch of text stands: `openings` may begin there, and free text there begins like none of them."""

    openings: tuple[Opening, ...] = ()
    before: str = ""  # a pattern of what may come before them

    @property
    def is_bound(self) -> bool:
        """Whether something must begin here at once."""
        return any(not opening.text for opening in self.openings)


class _FreeText:
    """One free text being written into a grammar."""

    def __init__(self, grammar: GrammarText, body: FreeText, *, not_begun_by: str = "") -> None:
        """`not_begun_by`: what opens thinking, and so something else than this text."""
        self._grammar = grammar
        self._table = grammar.table
        closed = body.max_regions == 0
        self._max_regions = body.max_regions
        inner = [pair for r in body.regions if not self._is_outer(r) for pair in spellings(r)]
        outer = [pair for r in body.regions if self._is_outer(r) for pair in spellings(r)]
        banned = [*body.banned, *(trigger for trigger, _ in inner if closed)]
        not_begun = [t for t in (not_begun_by, *(trigger for trigger, _ in outer if closed)) if t]
        self._triggers = openings([] if closed else inner, banned)
        self._after_token = self._places_after_tokens([] if closed else inner, banned)
        self._begin = _Place(tuple(openings([] if closed else outer, not_begun)), WHITE)
        # After a region, what begins an answer may begin another. Elsewhere it is text that only looks alike.
        self._again = _Place(tuple(openings(outer, ())), BETWEEN) if outer and not closed else _Place()
        opens_thinking = self._table.control.get(not_begun_by)
        shut = {*self._after_token, *([] if opens_thinking is None else [opens_thinking])}
        self._plain_tokens = self._table.free_control_ids(shut)

    def _is_outer(self, region: Triggered) -> bool:
        return region.at_start and isinstance(next(self._table.pieces(region.trigger)), str)

    def _places_after_tokens(self, bound: list[tuple[str, Rule]], banned: list[str]) -> dict[int, _Place]:
        """What may stand after each control token that a trigger begins with. Only text up to the next control token counts."""
        rules: dict[str, list[tuple[str, Rule]]] = {}
        bans: dict[str, list[str]] = {}
        for trigger, rule in bound:
            if control := self._first_control(trigger):
                rules.setdefault(control, []).append((self._begin_of(trigger), rule))
        for trigger in banned:
            if control := self._first_control(trigger):
                bans.setdefault(control, []).append(self._begin_of(trigger))
        places = {}
        for control in {*rules, *bans}:
            found = openings(rules.get(control, ()), bans.get(control, ()))
            after = tuple(Opening(o.text.removeprefix(control), o.rest) for o in found)
            places[self._table.control[control]] = _Place(after)
        return places

    def _first_control(self, trigger: str) -> str:
        """The control token a trigger begins with, or ""."""
        first = next(self._table.pieces(trigger))
        return "" if isinstance(first, str) else self._table.text_of(first)

    def _begin_of(self, trigger: str) -> str:
        """A trigger up to its second control token."""
        begin = ""
        for i, piece in enumerate(self._table.pieces(trigger)):
            if i and isinstance(piece, int):
                break
            begin += piece if isinstance(piece, str) else self._table.text_of(piece)
        return begin

    # Expressions.

    def answer(self) -> str:
        """The whole text."""
        most, plain = self._max_regions, self._again
        tail = self._tail(self._begin)
        first = self._up_to_region(self._begin)
        if first is None or most == 0:
            return tail
        more = self._up_to_region(plain)
        if more is None:
            return f"{tail} | {first} {self._tail(plain) if most != 1 else ''}"
        if most is None:
            return f"{tail} | {first} {repeated(more, 0, None)} {self._tail(plain)}"
        if most == 1:
            return f"{tail} | {first}"
        fewer = repeated(more, 0, most - 2)
        return f"{tail} | {first} {fewer} {self._tail(plain)} | {first} {repeated(more, most - 1, most - 1)}"

    def up_to_region(self) -> str:
        """Text up to and including the first region."""
        found = self._up_to_region(_Place())
        assert found is not None
        return found

    def _up_to_region(self, place: _Place) -> str | None:
        """Text from `place` up to and including a region; None where there can be none."""
        found = self._regions(place)
        plain = _Place()
        later = []
        if self._plain_tokens:
            later += [f"{self._any_plain_token()} {region}" for region in self._regions(plain)]
        for control, after in self._after_token.items():
            later += [f"{token(control)} {region}" for region in self._regions(after)]
        if later:
            found.append(f"{self._tail(place)} ({' | '.join(later)})")
        return self._grammar.rule(" | ".join(found)) if found else None

    def _regions(self, place: _Place) -> list[str]:
        """Regions that begin in a stretch at `place`, with the text before them."""
        grammar, found = self._grammar, []
        for opening in place.openings:
            if opening.rest is not None:
                # One terminal: free text that begins alike goes on until it is complete.
                begin = grammar.terminal(
                    (f"/{place.before}/ " if place.before else "") + quoted(opening.text)
                )
                found.append(f"{begin if opening.text else ''} {grammar.expression(opening.rest)}")
        if place.is_bound:
            return found
        banned = [opening.text for opening in self._triggers if opening.rest is None]
        for opening in self._triggers:
            if opening.rest is not None:
                head = without(f"({ANYTHING} {quoted(opening.text)})", banned)
                lazy = grammar.rule(grammar.terminal(not_beginning(head, place)), "[lazy]")
                found.append(f"{lazy} {grammar.expression(opening.rest)}")
        return found

    def _tail(self, place: _Place) -> str:
        """Text from `place` on in which no region begins."""
        parts = [f"{self._any_plain_token()} {self._text(_Place())}"] if self._plain_tokens else []
        for control, after in self._after_token.items():
            if not after.is_bound:
                parts.append(f"{token(control)} {self._text(after)}")
        more = f" ({' | '.join(parts)})*" if parts else ""
        return self._grammar.rule(self._text(place) + more)

    def _text(self, place: _Place) -> str:
        """An optional stretch of text at `place` without any trigger."""
        clean = without(SOMETHING, [opening.text for opening in self._triggers])
        return self._grammar.terminal(not_beginning(clean, place)) + "?"

    def _any_plain_token(self) -> str:
        return self._grammar.rule(tokens(self._plain_tokens))


def not_beginning(expression: str, place: _Place) -> str:
    """`expression`, restricted to texts that begin like nothing that opens at `place`."""
    if not place.openings:
        return expression
    texts: Iterable[str] = (quoted(opening.text) for opening in place.openings)
    before = f"/{place.before}/ " if place.before else ""
    return f"({expression} & ~({before}({' | '.join(texts)}) {ANYTHING}))"
