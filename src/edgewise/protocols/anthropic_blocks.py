"""Content blocks of the Messages API as text: text, documents, search results, and whatever a tool result holds.

A model here reads text. In a user's turn an image or a PDF is therefore a 400 that names the block. In a tool result, which the
client's program made and cannot take back, a short note stands in its place, so that the session goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from edgewise.core.chat import TextPart
from edgewise.core.errors import InvalidRequestError
from edgewise.protocols.fields import Fields, invalid

_JOINT = "\n"
_MEDIA = {"image": "an image", "document": "a document"}


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


def text_parts(texts: Iterable[str]) -> tuple[TextPart, ...]:
    """A part for each text that is not empty."""
    return tuple(TextPart(text) for text in texts if text)


def text_of(block: Fields) -> str:
    block.require("text")
    return block.string("text") or ""


def unknown_block(block: Fields) -> InvalidRequestError:
    return block.fail("type", "must be a kind of block that belongs here, such as text", block.get("type"))


def visible_text(block: Fields) -> str:
    """The text of a user's block. Raises InvalidRequestError, naming the block, for media and for unknown kinds."""
    text = _plain_text(block, _refuse)
    return _refuse(block) if text is None else text


def result_text(block: Fields) -> str:
    """The text of a block inside a tool result: every kind has one, if only a note in its place."""
    text = _plain_text(block, _note)
    return _note(block) if text is None else text


def _plain_text(block: Fields, left_out: Callable[[Fields], str]) -> str | None:
    """The text of a block that holds text. `left_out` says what becomes of media inside it. None: another kind of block."""
    match block.string("type"):
        case "text":
            return text_of(block)
        case "document":
            return _document_text(block, left_out)
        case "search_result":
            return _lines(block.string("title"), block.string("source"), *map(result_text, blocks_of(block)))
        case "tool_reference":
            return f"[the tool {block.string('tool_name')} can be called]"
        case _:
            return None


def _document_text(block: Fields, left_out: Callable[[Fields], str]) -> str | None:
    """The text of a document that came as text; None for one that has to be seen."""
    source = block.object("source")
    if source is None:
        raise block.fail("source", "is required")
    match source.string("type"):
        case "text":
            texts: Iterable[str] = (source.string("data") or "",)
        case "content":
            inner = blocks_of(source)
            texts = (text_of(b) if b.get("type") == "text" else left_out(b) for b in inner)
        case _:
            return None
    return _lines(block.string("title"), block.string("context"), *texts)


def _refuse(block: Fields) -> NoReturn:
    kind = block.string("type")
    if kind not in _MEDIA:
        raise unknown_block(block)
    raise invalid(block.path, f"is {_MEDIA[kind]}; this model takes text only")


def _note(block: Fields) -> str:
    source = block.data.get("source")
    media_type = source.get("media_type") if isinstance(source, dict) else None
    what = f"{block.string('type') or 'block'}{f' ({media_type})' if isinstance(media_type, str) else ''}"
    return f"[{what} left out: this model reads text only]"


def _lines(*texts: str | None) -> str:
    return _JOINT.join(filter(None, texts))
