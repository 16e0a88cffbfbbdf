"""Why an engine does not run."""

from __future__ import annotations

from collections.abc import Sequence

from edgewise.core.errors import EdgewiseError


class EngineStartError(EdgewiseError):
    """It ended, did not answer in time, or answered its first request with an error. `lines`: the last of its log."""

    def __init__(self, message: str, *, hint: str | None = None, lines: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.lines = tuple(lines)


class NoRoomError(EngineStartError):
    """The machine has not the memory it needs, or had less than its floor once the engine ran."""
