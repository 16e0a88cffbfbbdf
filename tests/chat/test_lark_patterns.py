"""Lark grammars as regular expressions, tried with Python's own."""

from __future__ import annotations

import re

import pytest

from edgewise.chat.lark_patterns import MAX_CHARS, LarkPatternError, lark_fault, pattern_of_lark

NOTES = r"""
// A list of changes, each a line long.
start: head change+ ("END" | "STOP") LF?
head: "@@ NOTES " NUMBER LF
?change: add | drop | rename
add: "+" /(.*)/ LF -> line
drop: "-" name LF
rename: "=" name LF
      | "=" name " to " name LF
name: /[a-z\/]+/ [":" INT]
INT: DIGIT ~ 1..3
%import common.LF
%import common (DIGIT, NUMBER)
"""


def whole(grammar: str, text: str) -> bool:
    return re.fullmatch(pattern_of_lark(grammar), text) is not None


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ('@@ NOTES 1\n+anything at all, "quoted" \\ too\nEND', True),
        ("@@ NOTES 2.5\n-a/b:123\n=c to d:1\nSTOP\n", True),
        ("@@ NOTES 1\n=cEND", False),
        ("@@ NOTES 1\n=c\nEND", True),
        ("@@ NOTES 1\nEND", False),
        ("@@ NOTES x\n-a\nEND", False),
        ("@@ NOTES 1\n-a:1234\nEND", False),
        ("@@ NOTES 1\n+two\nlines\nEND", False),
        ("", False),
    ],
)
def test_a_grammar_of_lines(text: str, fits: bool):
    assert whole(NOTES, text) is fits


@pytest.mark.parametrize(
    ("grammar", "yes", "no"),
    [
        ('start: "a" "b"i', ("ab", "aB"), ("Ab", "a b")),
        ('start: "x".."z"+', ("xyz",), ("w", "")),
        ('start: A A\nA: /a+/\n%ignore " "', ("a a", " aa ", "aa"), ("a b",)),
        ('start: WORD ("," WORD)*\nWORD: /\\w+/\n%ignore /\\s+/', ("a, b ,c",), ("a b",)),
        ('start: "a" ~ 2', ("aa",), ("a", "aaa")),
        ('start: "a"{2,}', ("aa", "aaa"), ("a",)),
        ('start: ["-"] DIGITS\nDIGITS: ("0".."9")+', ("-12", "3"), ("--1",)),
        ('start: /SELECT/i " " /[^;]+/ ";"', ("select a;",), ("select ;",)),
        (r'start: "\\" "\"" "(.)"', (r"\"(.)",), (r"\"(a)",)),
        ('start.2: x\nx.1: "1"\n', ("1",), ("2",)),
        ('start: | "a"', ("", "a"), ("b",)),
        ("start: CNAME\n%import common.CNAME", ("_a1",), ("1a",)),
        ("start: N\n%import common.SIGNED_NUMBER -> N", ("-1.5e3", "7"), ("e",)),
        ("start: ESCAPED_STRING\n%import common.ESCAPED_STRING", (r'"a\"b"',), ('"a"b"',)),
    ],
)
def test_the_syntax(grammar: str, yes: tuple[str, ...], no: tuple[str, ...]):
    for text in yes:
        assert whole(grammar, text), text
    for text in no:
        assert not whole(grammar, text), text


GROWING = "\n".join(f"{x}: {y} {y} {y} {y}" for x, y in ("ab", "bc", "cd", "de", "ef"))


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ('start: "(" start ")" | "x"', "'start' refers to itself"),
        ("start: a\na: b\nb: a", "'a' refers to itself"),
        ("start: nowhere", "nothing defines 'nowhere'"),
        ('begin: "a"', "nothing defines 'start'"),
        ('start: ("a"', "stands where ')' should"),
        ('start: "a" )', "is not understood"),
        ('start: "a', "is not understood"),
        ('start: + "a"', "is not understood"),
        ("start: %json {}", "is not understood"),
        ("start: X\n%import python.X", "is not supported"),
        ("start: X\n%import common.NOPE -> X", "no common terminal NOPE"),
        ('start: "b".."a"', "a range"),
        (f'start: a\n{GROWING}\nf: "xxxxxxx"', str(MAX_CHARS)),
        ("once upon a time", "is not understood"),
        ("", "nothing defines 'start'"),
    ],
)
def test_what_is_no_expression(grammar: str, reason: str):
    with pytest.raises(LarkPatternError, match=re.escape(reason)):
        pattern_of_lark(grammar)


@pytest.mark.parametrize(
    ("grammar", "fault"),
    [
        ('start: ("a"', "stands where"),
        ("start: nowhere", "nothing defines"),
        ("once upon a time", "is not understood"),
        ('start: "(" start ")" | "x"', ""),
        ("start: X\n%import python.X", ""),
        ('start: _sep{"a", ","}\n_sep{x, by}: x (by x)*', ""),
        ('_sep{x, by}: x (by x)*\nstart: _sep{"a", ","}', ""),
        ('start: "a"', ""),
    ],
)
def test_a_grammar_that_is_none_is_told_from_one_that_is_no_expression(grammar: str, fault: str):
    found = lark_fault(grammar)
    assert fault in found and bool(found) is bool(fault)


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ("start: " + "(" * 20_000 + '"a"' + ")" * 20_000, "nested"),
        ("start: " + "[" * 300 + '"a"' + "]" * 300, "nested"),
        ("start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(2000)) + '\nr2000: "a"', "nested"),
        ("start: " + "b " * 20_000 + f'\nb: "{"x" * 8000}"', str(MAX_CHARS)),
        ("start: " + "|".join(["b"] * 20_000) + f'\nb: "{"x" * 8000}"', str(MAX_CHARS)),
        ('start: "a"\n' + "%ignore B\n" * 4000 + f'B: "{"x" * 8000}"', str(MAX_CHARS)),
        (f'start: "{"x" * 100_000}"', "characters"),
    ],
    ids=lambda given: given[:12],
)
def test_a_grammar_without_measure_is_no_expression(grammar: str, reason: str):
    """Whether it is one at all is not asked any more: it is told to the model, and a warning says that it does not bind."""
    with pytest.raises(LarkPatternError, match=reason):
        pattern_of_lark(grammar)
    assert not lark_fault(grammar)
