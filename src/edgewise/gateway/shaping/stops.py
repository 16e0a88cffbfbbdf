"""Stop strings for upstreams that do not heed them: the text ends before the first that is written."""

from __future__ import annotations

from collections.abc import Sequence

from edgewise.chat.splitter import Finder


class StopStrings:
    """`matched` is set once one was found; from then on there is no more text."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._finder = Finder(tuple(stops))
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str, *, final: bool = False) -> str:
        """More of the text; what may be the beginning of a stop string waits, unless this is all."""
        if self.matched is not None:
            return ""
        text = self._held + text
        place, found = self._finder.find(text, final=final)
        self._held = "" if found else text[place:]
        self.matched = found or None
        return text[:place]

    def finish(self) -> str:
        return self.push("", final=True)
