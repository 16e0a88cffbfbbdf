"""A call's arguments as a JSON object, whatever the model or the upstream made of them; piece by piece where they come so.

What is nearly JSON is mended as the dialects mend it, what was cut is closed. Text that is no object at all is not guessed at: it is kept
whole under `RAW_KEY`, so that a tool refuses it and the model sees what it wrote.
"""

from __future__ import annotations

import json
from typing import Any

from edgewise.chat.dialects.arguments import ArgumentWriter, dumped
from edgewise.chat.dialects.literals import LiteralReader
from edgewise.chat.dialects.reader import MalformedError, Reader

RAW_KEY = "__raw__"


def mended(text: str) -> str:
    """The whole of one call's arguments as the text of a JSON object."""
    arguments = Arguments()
    return arguments.push(text) + arguments.finish()


class Arguments:
    """The arguments of one call on their way. An object's JSON goes through unchanged.

    After a mistake the object is closed, with what follows the mistake under `RAW_KEY`. `cut`: the text ended inside the object.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._reader = Reader()
        self._writer = ArgumentWriter(self._emit)
        self._steps = LiteralReader(self._reader, self._writer).value()
        self._before = ""
        self._rest = ""
        self._last = ""  # what was written last, white space aside
        self._state = "before"
        self.cut = False

    @property
    def malformed(self) -> bool:
        return self._state == "malformed"

    def _emit(self, text: str) -> None:
        self._pieces.append(text)
        self._last = text.rstrip()[-1:] or self._last

    def push(self, text: str) -> str:
        """More of the arguments; returns what of them is certain."""
        if self._state == "before":
            self._before += text
            if not self._before.lstrip().startswith("{"):
                return ""
            text, self._state = self._before.lstrip(), "object"
        if self._state == "object":
            self._read(text)
        elif self._state == "malformed":
            self._rest += text
        return self._taken()

    def _read(self, text: str) -> None:
        self._reader.feed(text)
        try:
            next(self._steps)
        except StopIteration:
            self._state = "after"
        except MalformedError:
            self._state = "malformed"
            self._rest = self._reader.text[self._reader.pos :]
        self._reader.kept = self._reader.pos

    def finish(self) -> str:
        """The rest, after which the text is a JSON object."""
        match self._state:
            case "before":
                return _from_value(self._before)
            case "object":
                self._end()
            case "malformed":
                self._mark()
            case _:
                pass
        return self._taken()

    def _mark(self) -> None:
        """Close what is open inside the object, then tell of the rest."""
        writer = self._writer
        writer.held = ""
        writer.put("".join(reversed(writer.open[1:])))
        del writer.open[1:]
        comma = "" if self._last == "{" else ", "
        writer.put(f"{comma}{dumped(RAW_KEY)}: {dumped(self._rest)}")
        writer.end()

    def _end(self) -> None:
        self._reader.ended = True
        try:
            for _ in self._steps:
                pass
        except MalformedError:
            self.cut = True
            self._writer.abandon()

    def _taken(self) -> str:
        text = "".join(self._pieces)
        self._pieces.clear()
        return text


def _from_value(text: str) -> str:
    """Arguments that are no object: none at all, an object's text in a string, or something a tool shall refuse."""
    if not text.strip():
        return "{}"
    try:
        value: Any = json.loads(text)
    except ValueError:
        return dumped({RAW_KEY: text})
    if value is None:
        return "{}"
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return mended(value)
    return dumped({RAW_KEY: text})
