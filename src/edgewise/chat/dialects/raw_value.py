"""Values that stand in the text as they are, without quotes, up to a closing tag."""

from __future__ import annotations

import re
from collections.abc import Callable

from edgewise.chat.dialects.arguments import ArgumentWriter, escaped
from edgewise.chat.dialects.reader import MalformedError, Reader, Step
from edgewise.chat.dialects.schema import may_be_constant, typed


class RawValue:
    """Reads one value, up to and with `close`, which counts only where one of `followers` (or nothing) comes after it.

    `own_lines`: a line break before the value and one after it belong to the tags.
    """

    def __init__(
        self, reader: Reader, out: ArgumentWriter, close: str, followers: tuple[str, ...], *, own_lines: bool
    ) -> None:
        self.reader = reader
        self.out = out
        self.close = close
        self.followers = followers
        self.own_lines = own_lines
        self.stop = re.compile(f"[{re.escape(self.close[0])}" + (r"\n" if own_lines else "") + "]")

    def read(self, kinds: frozenset[str]) -> Step[None]:
        """Write the value as JSON of one of `kinds`: a string as it comes, anything else when it is whole."""
        if self.own_lines:
            yield from self.reader.take("\n")
        if "string" not in kinds or not kinds <= {"string", "null", "boolean"}:
            text, _ = yield from self._gather(lambda text: True)
            self.out.put(typed(text, kinds))
            return
        text, over = yield from self._gather(lambda text: may_be_constant(text, kinds))
        if over and len(kinds) > 1:
            self.out.put(typed(text, kinds))
            return
        self.out.begin('"')
        self.out.put(escaped(text))
        while not over:
            text, over = yield from self._piece()
            self.out.put(escaped(text))
        self.out.end()

    def _gather(self, going_on: Callable[[str], bool]) -> Step[tuple[str, bool]]:
        """The value's text while `going_on` says so of what there is; and whether the value is over."""
        text, over = "", False
        while not over and going_on(text):
            piece, over = yield from self._piece()
            text += piece
        return text, over

    def _piece(self) -> Step[tuple[str, bool]]:
        """Some more text of the value (or none), and whether it is over; its closing tag is then consumed."""
        reader = self.reader
        match = self.stop.search(reader.text, reader.pos)
        count = (match.start() if match else len(reader.text)) - reader.pos
        if count:
            return self._consumed(count), False
        if match is None:
            if not (yield from reader.more()):
                raise MalformedError("the text ended inside a value")
            return "", False
        line = 1 if match.group() == "\n" and self.close[0] != "\n" else 0
        if (yield from self._closes(line)):
            self._consumed(line + len(self.close))
            return "", True
        return self._consumed(1), False

    def _consumed(self, count: int) -> str:
        self.reader.pos += count
        return self.reader.text[self.reader.pos - count : self.reader.pos]

    def _closes(self, ahead: int) -> Step[bool]:
        """Whether the closing tag comes next and something follows that can only follow it, or nothing at all."""
        reader = self.reader
        if not (yield from reader.sees(self.close, ahead)):
            return False
        ahead += len(self.close)
        while (yield from reader.need(ahead + 1)):
            if not reader.text[reader.pos + ahead].isspace():
                break
            ahead += 1
        else:
            return True
        for follower in self.followers:
            if (yield from reader.sees(follower, ahead)):
                return True
        return False
