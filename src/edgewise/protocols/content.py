"""The content of a chat message: text, or parts of text, thinking and media.

Media are kept as they came and as what they are: nothing is fetched, nothing is decoded, and their bytes never become text.
"""

from __future__ import annotations

from typing import Literal

from edgewise.core.chat import MediaPart, Part, TextPart
from edgewise.protocols.fields import Fields
from edgewise.protocols.reasoning_fields import thought_text

_TEXT_PARTS = ("text", "input_text", "output_text")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
MediaKind = Literal["image", "audio", "video", "document"]
_MEDIA_PARTS: dict[str, MediaKind] = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "image_embeds": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "audio": "audio",
    "video_url": "video",
    "video": "video",
    "file": "document",
    "input_file": "document",
    "document": "document",
}


def read_content(message: Fields) -> tuple[tuple[Part, ...], str | None] | None:
    """(the parts, the thinking that came between them) of `content`; None where there is none. Raises InvalidRequestError."""
    content = message.get("content")
    if content is None:
        return None
    if isinstance(content, str):
        return (TextPart(content),), None
    if not isinstance(content, list):
        raise message.fail("content", "must be a string or an array of parts", content)
    parts: list[Part] = []
    thoughts: list[str] = []
    for i, raw in enumerate(content):
        part = _read_part(raw, message.name(f"content[{i}]"))
        if isinstance(part, str):
            thoughts.append(part)
        else:
            parts.append(part)
    return tuple(parts), "\n".join(filter(None, thoughts)) or None


def _read_part(raw: object, path: str) -> Part | str:
    """A part, or the text of one that holds thinking."""
    if isinstance(raw, str):
        return TextPart(raw)
    part = Fields.of(raw, path)
    kind = part.string("type") or ("text" if isinstance(part.data.get("text"), str) else "")
    if kind in _TEXT_PARTS:
        return TextPart(_required_text(part, "text"), {key: part.data[key] for key in part.unread()})
    if kind == "refusal":
        return TextPart(_required_text(part, "refusal"))
    if kind in _THOUGHTS:
        return thought_text(dict(part.data))
    if kind in _MEDIA_PARTS:
        return MediaPart(_MEDIA_PARTS[kind], dict(part.data), path)
    raise part.fail("type", "must be a known kind of part such as text", part.get("type"))


def _required_text(part: Fields, key: str) -> str:
    part.require(key)
    return part.string(key) or ""


def without_media(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """What a tool returned, with a note in place of media, so that a loop that looked at a picture goes on."""
    return tuple(
        TextPart(f"[{_ARTICLES[part.kind]} was returned here; this model reads text only]")
        if isinstance(part, MediaPart)
        else part
        for part in parts
    )


_ARTICLES: dict[MediaKind, str] = {
    "image": "an image",
    "audio": "audio",
    "video": "a video",
    "document": "a document",
}
