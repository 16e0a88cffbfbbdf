"""Reading values as models write them (JSON, Python literals, key:value braces) and writing them on as JSON, piece by piece.

JSON text goes through unchanged, white space included; what is nearly JSON (raw line breaks in strings, trailing commas, single quotes,
True and None) is mended on the way. What cannot be mended raises MalformedError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from edgewise.chat.dialects.arguments import ArgumentWriter, dumped, escaped
from edgewise.chat.dialects.reader import MalformedError, Reader, Step

MAX_DEPTH = 64
WORD = re.compile(r"[^\s,:;{}\[\]()<>\"'`=]*")
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
WORDS = {"true": "true", "True": "true", "false": "false", "False": "false"}
WORDS |= dict.fromkeys(("null", "None", "none", "undefined", "NaN", "nan", "Infinity", "-Infinity"), "null")
HEX = re.compile(r"[0-9a-fA-F]*")
PYTHON_ESCAPES = {"a": "\a", "v": "\v", "0": "\0", "\n": "", "'": "'"}
WIDTHS = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True, slots=True)
class Syntax:
    """How a dialect writes values. Everything understands JSON; these are what else it has.

    `delimiter`: strings stand between two of these, unescaped. `bare`: keys need no quotes, nor do strings that are one word.
    """

    delimiter: str = ""
    bare: bool = False


JSON = Syntax()


class LiteralReader:
    """Reads one value after another from `reader` into `out`."""

    def __init__(self, reader: Reader, out: ArgumentWriter, syntax: Syntax = JSON) -> None:
        self.reader = reader
        self.out = out
        self.syntax = syntax

    def value(self, depth: int = 0, kinds: frozenset[str] = frozenset()) -> Step[None]:
        """Read one value, beginning at once. Raises MalformedError, also where the text ends inside it.

        `kinds` are the types its schema allows: where that is text alone, a bare number is text.
        """
        if depth > MAX_DEPTH:
            raise MalformedError(f"nested deeper than {MAX_DEPTH}")
        first = yield from self.reader.peek()
        delimiter = self.syntax.delimiter
        if delimiter and (yield from self.reader.take(delimiter)):
            yield from self.delimited(delimiter)
        elif first == "{":
            yield from self.object(depth)
        elif first and first in "[(":
            yield from self.array(depth, "]" if first == "[" else ")")
        elif first and first in "\"'":
            yield from self.quoted(first)
        else:
            yield from self.word(kinds)

    def space(self) -> Step[None]:
        """White space between tokens goes out with what follows."""
        self.out.hold((yield from self.reader.skip_space()))

    def object(self, depth: int, kinds_of: Callable[[str], frozenset[str]] | None = None) -> Step[None]:
        """An object; `kinds_of` gives the types its keys' values may have."""
        yield from self.reader.expect("{")
        self.out.begin("{")
        yield from self.space()
        while not (yield from self.reader.take("}")):
            key = yield from self.key()
            yield from self.space()
            yield from self.value(depth + 1, kinds_of(key) if kinds_of else frozenset())
            yield from self.joint("}")
        self.out.end()

    def array(self, depth: int, close: str) -> Step[None]:
        self.reader.pos += 1
        self.out.begin("[")
        yield from self.space()
        while not (yield from self.reader.take(close)):
            yield from self.value(depth + 1)
            yield from self.joint(close)
        self.out.end()

    def joint(self, close: str) -> Step[None]:
        """A comma with its white space, or nothing before `close`."""
        yield from self.space()
        if (yield from self.reader.take(",")):
            self.out.hold(",")
            yield from self.space()
        elif not (yield from self.reader.sees(close)):
            raise MalformedError(f"expected a comma or {close!r}")

    def key(self) -> Step[str]:
        """A key and its colon, held back until the value begins."""
        text = yield from self.string()
        self.out.hold(text)
        yield from self.space()
        yield from self.reader.expect(":")
        self.out.hold(":")
        return str(json.loads(text))

    def text(self) -> Step[str]:
        """A whole string, decoded: a name, or a key that matters."""
        return str(json.loads((yield from self.string())))

    def string(self) -> Step[str]:
        """A whole string as JSON text, not written anywhere."""
        first = yield from self.reader.peek()
        delimiter = self.syntax.delimiter
        if delimiter and (yield from self.reader.take(delimiter)):
            return dumped((yield from self.reader.until(delimiter))[0])
        if first and first in "\"'":
            pieces: list[str] = []
            yield from LiteralReader(self.reader, ArgumentWriter(pieces.append)).quoted(first)
            return "".join(pieces)
        word = (yield from self.reader.run(WORD)) if self.syntax.bare else ""
        if not word:
            raise MalformedError("expected a quoted string")
        return dumped(word)

    def word(self, kinds: frozenset[str]) -> Step[None]:
        """A number, true, false or null; a bare word where the syntax has them."""
        word = yield from self.reader.run(WORD)
        if word and kinds == {"string"}:
            self.out.put(dumped(word))
        elif word in WORDS:
            self.out.put(WORDS[word])
        elif NUMBER.fullmatch(word):
            self.out.put(word)
        elif (number := _mended_number(word)) is not None:
            self.out.put(number)
        elif self.syntax.bare and word:
            self.out.put(dumped(word))
        else:
            raise MalformedError(f"no value: {word!r}")

    def delimited(self, delimiter: str) -> Step[None]:
        """Raw text up to a delimiter after which a value may end."""
        self.out.begin('"')
        stop = re.compile(re.escape(delimiter[0]))
        while True:
            yield from self._plain(stop)
            if (yield from self._ends_here(delimiter)):
                self.reader.pos += len(delimiter)
                break
            self._pass(1)
        self.out.end()

    def _ends_here(self, delimiter: str) -> Step[bool]:
        """Whether a delimiter comes next, and after it what may follow a value (or nothing)."""
        if not (yield from self.reader.sees(delimiter)):
            return False
        ahead = len(delimiter)
        while (yield from self.reader.need(ahead + 1)):
            following = self.reader.text[self.reader.pos + ahead]
            if not following.isspace():
                return following in ",}])"
            ahead += 1
        return True

    def quoted(self, quote: str) -> Step[None]:
        """A string between quotes (one or three), with JSON's escapes or Python's; raw control characters are escaped."""
        closing = (yield from self.reader.take(quote * 3, quote)) or quote
        self.out.begin('"')
        stop = re.compile(f"[{quote}\\\\]")
        while True:
            yield from self._plain(stop)
            if (yield from self.reader.sees("\\")):
                yield from self.escape()
            elif (yield from self.reader.take(closing)):
                break
            else:
                self._pass(1)
        self.out.end()

    def _plain(self, stop: re.Pattern[str]) -> Step[None]:
        """Text up to a character that `stop` matches, sent on as it comes."""
        while True:
            match = stop.search(self.reader.text, self.reader.pos)
            self._pass((match.start() if match else len(self.reader.text)) - self.reader.pos)
            if match is not None:
                return
            if not (yield from self.reader.more()):
                raise MalformedError("the text ended inside a string")

    def _pass(self, count: int) -> None:
        if count:
            self.reader.pos += count
            self.out.put(escaped(self.reader.text[self.reader.pos - count : self.reader.pos]))

    def escape(self) -> Step[None]:
        """One backslash escape: JSON's go through as they are, Python's are rewritten, others are a literal backslash."""
        if not (yield from self.reader.need(2)):
            raise MalformedError("the text ended inside a string")
        kind = self.reader.text[self.reader.pos + 1]
        if kind in WIDTHS:
            yield from self._code(kind)
            return
        self.reader.pos += 2
        if kind in '"\\/bfnrt':
            self.out.put("\\" + kind)
        elif kind in PYTHON_ESCAPES:
            self.out.put(escaped(PYTHON_ESCAPES[kind]))
        else:
            self.out.put(escaped("\\" + kind))

    def _code(self, kind: str) -> Step[None]:
        r"""\uXXXX as it is; \xXX and \UXXXXXXXX as the character; one without its digits is a literal backslash."""
        width = WIDTHS[kind]
        yield from self.reader.need(2 + width)
        digits = self.reader.text[self.reader.pos + 2 : self.reader.pos + 2 + width]
        if len(digits) < width or not HEX.fullmatch(digits):
            self.reader.pos += 2
            self.out.put("\\\\" + kind)
            return
        self.reader.pos += 2 + width
        code = int(digits, 16)
        if kind == "u":
            self.out.put("\\u" + digits)
        else:
            self.out.put(escaped(chr(code)) if code < 0x110000 else "\\\\" + kind + digits)


def _mended_number(word: str) -> str | None:
    """A number that Python reads and JSON does not (1_000, +1, .5, 007), as JSON; None: no number."""
    try:
        value: int | float = int(word)
    except ValueError:
        try:
            value = float(word)
        except ValueError:
            return None
    text = json.dumps(value)
    return text if NUMBER.fullmatch(text) else None
