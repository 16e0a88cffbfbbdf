"""Lark grammars as regular expressions: what a freeform tool's input has to match, in a form that can stand inside other notation.

A grammar whose rules do not lead back to themselves is one regular expression, and those that tools come with are such: patches,
queries, expressions of a fixed depth. What is written here is the syntax of regular expressions that Rust, Python and JSON schemas share.
Source: Lark's grammar reference and its library of common terminals.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_CHARS = 8192  # of an expression
MAX_SOURCE_CHARS = 1 << 16
MAX_DEPTH = 64  # of brackets and of rules in rules: each is read by several nested calls

COMMON = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9a-fA-F]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": r"(?:[0-9]+\.[0-9]*|\.[0-9]+)",
    "FLOAT": r"(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)",
    "NUMBER": r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "SIGNED_FLOAT": r"[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)",
    "SIGNED_NUMBER": r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[A-Za-z_][A-Za-z0-9_]*",
    "WS_INLINE": "[ \\t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
}

DEFINITION = re.compile(r"[?!]*(?P<name>[A-Za-z_]\w*)\s*(?:\.-?\d+)?\s*:(?!:)", re.ASCII)
TEMPLATE = re.compile(r"[?!]*[a-z_]\w*\s*\{[\w\s,]*\}\s*:", re.ASCII)
TOKEN = re.compile(
    r"""\s+|(?P<comment>//[^\n]*)
    |(?P<text>"(?:\\.|[^"\\\n])*")(?P<fold>i?)
    |(?P<regex>/(?!/)(?:\\.|[^/\\\n])+/)(?P<flags>[imslux]*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<number>\d+)
    |(?P<sign>->|\.\.|[|()\[\]?*+~{},.])""",
    re.VERBOSE | re.ASCII,
)
SPECIAL = frozenset(r"\.+*?()|[]{}^$/-&~#")


class LarkPatternError(ValueError):
    """A grammar that is no regular expression, or uses what is not known here."""


class LarkSyntaxError(LarkPatternError):
    """A grammar that is none."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    extra: str = ""


def pattern_of_lark(source: str) -> str:
    """A regular expression for the whole of what a grammar's `start` accepts. Raises LarkPatternError saying why there is none."""
    return _Grammar(source).pattern()


def lark_fault(source: str) -> str:
    """Why a text is no Lark grammar, or "": one that is no regular expression may still be a grammar."""
    try:
        pattern_of_lark(source)
    except LarkSyntaxError as error:
        return str(error)
    except LarkPatternError:
        pass
    return ""


def escaped(text: str) -> str:
    """A literal in a regular expression."""
    return "".join(
        "\\" + c if c in SPECIAL else {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(c, c) for c in text
    )


def within(expression: str) -> str:
    """An expression that is not too long: a rule that is used twice doubles what it says. Raises LarkPatternError."""
    if len(expression) > MAX_CHARS:
        raise LarkPatternError(f"as one expression it has more than {MAX_CHARS} characters")
    return expression


class _Grammar:
    """The definitions of one grammar, each made into an expression when it is first asked for."""

    def __init__(self, source: str) -> None:
        self._definitions: dict[str, list[_Token]] = {}
        self._patterns: dict[str, str] = {}
        self._open: list[str] = []
        self._ignored: list[list[_Token]] = []
        self._depth = 0
        if len(source) > MAX_SOURCE_CHARS:
            raise LarkPatternError(f"it has more than {MAX_SOURCE_CHARS} characters")
        for statement in _statements(source):
            self._read(statement)

    def pattern(self) -> str:
        self._skip = ""
        ignored = [_Expression(self, tokens, is_terminal=True).whole() for tokens in self._ignored]
        self._skip = within(f"(?:{'|'.join(ignored)})*") if ignored else ""
        return self.named("start") + self._skip

    @property
    def skip(self) -> str:
        """What may stand before a terminal of a rule."""
        return self._skip

    @contextlib.contextmanager
    def deeper(self) -> Iterator[None]:
        """While what stands inside something is read. Raises LarkPatternError where that is too deep."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise LarkPatternError(f"it is nested more than {MAX_DEPTH} levels deep")
        yield
        self._depth -= 1

    def _read(self, statement: str) -> None:
        if statement.startswith("%"):
            self._direct(statement)
            return
        match = DEFINITION.match(statement)
        if match is None and TEMPLATE.match(statement):
            raise LarkPatternError("templates are not supported")
        if match is None:
            raise LarkSyntaxError(f"the line {statement[:40]!r} is not understood")
        self._definitions[match["name"]] = list(_tokens(statement[match.end() :]))

    def _direct(self, statement: str) -> None:
        word, _, rest = statement.partition(" ")
        if word == "%ignore":
            self._ignored.append(list(_tokens(rest)))
        elif word == "%import" and (match := re.match(r"common\.(\w+)(?:\s*->\s*(\w+))?\s*$", rest.strip())):
            self._import(match[1], match[2] or match[1])
        elif word == "%import" and (match := re.match(r"common\s*\(([\w\s,]*)\)\s*$", rest.strip())):
            for name in re.findall(r"\w+", match[1]):
                self._import(name, name)
        else:
            raise LarkPatternError(f"{statement[:40]!r} is not supported")

    def _import(self, name: str, alias: str) -> None:
        if name not in COMMON:
            raise LarkPatternError(f"there is no common terminal {name}")
        self._patterns[alias] = f"(?:{COMMON[name]})"

    def named(self, name: str) -> str:
        """The expression of a definition."""
        if name in self._open:
            raise LarkPatternError(f"the rule {name!r} refers to itself")
        if name not in self._patterns:
            if name not in self._definitions:
                raise LarkSyntaxError(f"nothing defines {name!r}")
            self._open.append(name)
            whole = _Expression(self, self._definitions[name], is_terminal=name.isupper()).whole()
            self._open.pop()
            self._patterns[name] = f"(?:{whole})"
        return self._patterns[name]


@dataclass(slots=True)
class _Expression:
    """The right side of one definition."""

    grammar: _Grammar
    tokens: list[_Token]
    is_terminal: bool
    pos: int = field(default=0)

    def whole(self) -> str:
        found = self._choice()
        if self.pos < len(self.tokens):
            raise LarkSyntaxError(f"{self.tokens[self.pos].text!r} is not understood")
        return found

    def _peek(self) -> str:
        return self.tokens[self.pos].text if self.pos < len(self.tokens) else ""

    def _take(self, *signs: str) -> str:
        """The next token where it is one of these signs."""
        if self.pos < len(self.tokens) and self.tokens[self.pos].kind == "sign" and self._peek() in signs:
            self.pos += 1
            return self.tokens[self.pos - 1].text
        return ""

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise LarkSyntaxError(f"{self._peek()!r} stands where {sign!r} should")

    def _choice(self) -> str:
        with self.grammar.deeper():
            found = self._sequence()
            while self._take("|"):
                found = within(f"{found}|{self._sequence()}")
            return found

    def _sequence(self) -> str:
        found = ""
        while self._peek() and not (self.tokens[self.pos].kind == "sign" and self._peek() in "|)]->"):
            found = within(found + self._repeated())
        if self._take("->"):  # the name of an alternative
            self.pos += 1
        return found

    def _repeated(self) -> str:
        atom = self._atom()
        if sign := self._take("?", "*", "+"):
            return f"(?:{atom}){sign}"
        if self._take("~"):
            low = high = self._number()
            if self._take(".."):
                high = self._number()
            return f"(?:{atom}){{{low},{high}}}"
        if self._take("{"):
            low = high = self._number()
            if self._take(","):
                high = "" if self._peek() == "}" else self._number()
            self._expect("}")
            return f"(?:{atom}){{{low},{high}}}"
        return atom

    def _number(self) -> str:
        if self.pos >= len(self.tokens) or self.tokens[self.pos].kind != "number":
            raise LarkSyntaxError(f"{self._peek()!r} stands where a number should")
        self.pos += 1
        return self.tokens[self.pos - 1].text

    def _atom(self) -> str:
        if self._take("("):
            inner = self._choice()
            self._expect(")")
            return f"(?:{inner})"
        if self._take("["):
            inner = self._choice()
            self._expect("]")
            return f"(?:{inner})?"
        token = self.tokens[self.pos]
        self.pos += 1
        match token.kind:
            case "text":
                return self._before_terminal() + self._literal(token)
            case "regex":
                flags = f"?{token.extra}:" if token.extra.strip("u") else "?:"
                body = token.text[1:-1].replace(r"\/", "/")
                return f"{self._before_terminal()}({flags.replace('u', '')}{body})"
            case "name":
                before = self._before_terminal() if token.text.isupper() else ""
                return before + self.grammar.named(token.text)
        raise LarkSyntaxError(f"{token.text!r} is not understood")

    def _before_terminal(self) -> str:
        return "" if self.is_terminal else self.grammar.skip

    def _literal(self, token: _Token) -> str:
        text = _decoded(token.text)
        if self._take(".."):
            last = self.tokens[self.pos] if self.pos < len(self.tokens) else _Token("", "")
            self.pos += 1
            end = _decoded(last.text) if last.kind == "text" else ""
            if len(text) != 1 or len(end) != 1 or end < text:
                raise LarkSyntaxError("a range needs two characters in order")
            return f"[{escaped(text)}-{escaped(end)}]"
        return f"(?i:{escaped(text)})" if token.extra else escaped(text)


def _decoded(quoted: str) -> str:
    try:
        return str(ast.literal_eval(quoted))
    except (ValueError, SyntaxError):
        raise LarkSyntaxError(f"the text {quoted[:40]} is not understood") from None


def _statements(source: str) -> Iterator[str]:
    """Definitions and directives, each with the lines that go on with it."""
    lines: list[str] = []
    for line in source.splitlines():
        bare = line.strip()
        if not bare or bare.startswith("//"):
            continue
        if lines and (bare.startswith("%") or DEFINITION.match(bare) or TEMPLATE.match(bare)):
            yield "\n".join(lines)
            lines = []
        lines.append(bare)
    if lines:
        yield "\n".join(lines)


def _tokens(text: str) -> Iterator[_Token]:
    pos = 0
    while pos < len(text):
        match = TOKEN.match(text, pos)
        if match is None:
            raise LarkSyntaxError(f"{text[pos : pos + 20]!r} is not understood")
        pos = match.end()
        if match["text"] is not None:
            yield _Token("text", match["text"], match["fold"])
        elif match["regex"] is not None:
            yield _Token("regex", match["regex"], match["flags"])
        elif kind := next((kind for kind in ("name", "number", "sign") if match[kind] is not None), ""):
            yield _Token(kind, match[kind])
