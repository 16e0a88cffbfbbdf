"""Content blocks of the Messages API: text, documents, search results, and whatever a tool result holds.

An image or a PDF in a user's turn is kept as what it is, for a model that can take it (or a 400 that names the block). In a tool
result, which the client's program made and cannot take back, a short note stands in its place, so that the session goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from edgewise.core.chat import MediaPart, Part, TextPart
from edgewise.core.errors import InvalidRequestError
from edgewise.protocols.fields import Fields

_MEDIA: dict[str, Literal["image", "document"]] = {"image": "image", "document": "document"}


def blocks_of(fields: Fields, key: str = "content") -> list[Fields]:
    """The blocks of a field that may be a string, short for one text block; none where it is absent."""
    content = fields.get(key)
    if content is None:
        return []
    path = fields.name(key)
    if isinstance(content, str):
        return [Fields({"type": "text", "text": content}, path)]
    if not isinstance(content, list):
        raise fields.fail(key, "must be a string or an array of blocks", content)
    return [_block(raw, f"{path}[{i}]") for i, raw in enumerate(content)]


def _block(raw: object, path: str) -> Fields:
    return Fields({"type": "text", "text": raw}, path) if isinstance(raw, str) else Fields.of(raw, path)


def filled(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Without empty texts, which some clients send and the API refuses."""
    return tuple(part for part in parts if not isinstance(part, TextPart) or part.text)


def text_of(block: Fields) -> str:
    block.require("text")
    return block.string("text") or ""


def unknown_block(block: Fields) -> InvalidRequestError:
    return block.fail("type", "must be a kind of block that belongs here, such as text", block.get("type"))


def part_of(block: Fields) -> Part:
    """A block of a user's or an assistant's turn. Raises InvalidRequestError, naming the block, for an unknown kind."""
    text = _plain_text(block, notes=False)
    if text is not None:
        return TextPart(text)
    kind = _MEDIA.get(block.string("type") or "")
    if kind is None:
        raise unknown_block(block)
    return MediaPart(kind, dict(block.data), block.path)


def result_text(block: Fields) -> str:
    """The text of a block inside a tool result: every kind has one, if only a note in its place."""
    text = _plain_text(block, notes=True)
    return _note(block) if text is None else text


def _plain_text(block: Fields, *, notes: bool) -> str | None:
    """The text of a block that holds nothing but text, or (`notes`) with notes in place of the rest. None: another kind."""
    match block.string("type"):
        case "text":
            return text_of(block)
        case "document":
            return _document_text(block, notes=notes)
        case "search_result":
            return _lines(block.string("title"), block.string("source"), *map(result_text, blocks_of(block)))
        case "tool_reference":
            return f"[the tool {block.string('tool_name')} can be called]"
        case _:
            return None


def _document_text(block: Fields, *, notes: bool) -> str | None:
    source = block.object("source")
    if source is None:
        raise block.fail("source", "is required")
    match source.string("type"):
        case "text":
            texts = [source.string("data") or ""]
        case "content":
            inner = blocks_of(source)
            if not notes and any(b.get("type") != "text" for b in inner):
                return None
            texts = [result_text(b) for b in inner]
        case _:
            return None
    return _lines(block.string("title"), block.string("context"), *texts)


def _note(block: Fields) -> str:
    source = block.data.get("source")
    media_type = source.get("media_type") if isinstance(source, dict) else None
    what = f"{block.string('type') or 'block'}{f' ({media_type})' if isinstance(media_type, str) else ''}"
    return f"[{what} left out: this model reads text only]"


def _lines(*texts: str | None) -> str:
    return "\n".join(filter(None, texts))
