"""What a tool dialect's parser reports, in the order the model wrote it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text that belongs to no call, exactly as it was written."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call of an offered tool begins. Calls never overlap."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentPiece:
    """More of the open call's arguments. The pieces of one call, joined, are one JSON object."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The open call is over. `complete` is False when it was cut off or malformed, and its arguments were closed for it."""

    complete: bool = True


ToolEvent = TextPiece | CallStart | ArgumentPiece | CallEnd


def merged(events: list[ToolEvent]) -> list[ToolEvent]:
    """The same events with neighbouring pieces of one kind joined."""
    result: list[ToolEvent] = []
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, TextPiece) and isinstance(last, TextPiece):
            result[-1] = TextPiece(last.text + event.text)
        elif isinstance(event, ArgumentPiece) and isinstance(last, ArgumentPiece):
            result[-1] = ArgumentPiece(last.text + event.text)
        else:
            result.append(event)
    return result
