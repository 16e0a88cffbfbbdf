"""Writing a call's arguments as JSON text, piece by piece, so that what was written can always be closed into a valid object."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

CLOSERS = {"{": "}", "[": "]", '"': '"'}
CONTROL = {code: json.dumps(chr(code))[1:-1] for code in (*range(0x20), ord('"'), ord("\\"))}


def escaped(text: str) -> str:
    """Text as it stands between the quotes of a JSON string; non-ASCII characters stay as they are."""
    return text.translate(CONTROL)


def dumped(value: Any) -> str:
    """A value as JSON text, non-ASCII characters as they are."""
    return json.dumps(value, ensure_ascii=False)


class ArgumentWriter:
    """JSON text on its way out through `emit`. Nothing is sent before it is certain.

    `hold` keeps commas, keys and white space back until the value they lead to begins, so that `abandon` need only close what is open.
    """

    def __init__(self, emit: Callable[[str], None]) -> None:
        self.emit = emit
        self.open: list[str] = []
        self.held = ""
        self.started = False

    def hold(self, text: str) -> None:
        """Text that goes out with the next `put` or `begin`."""
        self.held += text

    def put(self, text: str) -> None:
        """Certain text: a whole scalar, or more of the open string."""
        if self.held or text:
            self.started = True
            self.emit(self.held + text)
            self.held = ""

    def begin(self, opener: str) -> None:
        """Open an object, an array or a string."""
        self.put(opener)
        self.open.append(CLOSERS[opener])

    def end(self) -> None:
        """Close what was opened last; a comma held back is dropped, white space is not."""
        self.held = self.held.replace(",", "")
        self.put(self.open.pop())

    def abandon(self) -> None:
        """Close whatever is open; what was held back is dropped. An object that never began is written as empty."""
        self.held = ""
        self.put("".join(reversed(self.open)) if self.started else "{}")
        self.open.clear()
