"""Pictures and files as parts of a request: what one API's part holds, written as another's.

Data travel as they are, base64; an address travels as an address. Nothing is fetched or decoded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from edgewise.core.chat import MediaPart

_DATA_URL = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Medium:
    """What a part holds. `data`: base64 of `media_type`; `url` where it holds an address instead."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    name: str = ""

    @property
    def address(self) -> str:
        """The address, a data URL where the data are here."""
        return self.url or f"data:{self.media_type};base64,{self.data}"


def medium_of(part: MediaPart) -> Medium | None:
    """None for a part whose content is in none of the known places."""
    source = part.source
    inner = source.get("source")
    if isinstance(inner, dict):  # Anthropic
        if inner.get("type") == "base64":
            return Medium(
                str(inner.get("media_type", "")),
                str(inner.get("data", "")),
                name=str(source.get("title") or ""),
            )
        return Medium(url=str(inner["url"])) if "url" in inner else None
    audio = source.get("input_audio")
    if isinstance(audio, dict):
        return Medium(f"audio/{audio.get('format', 'wav')}", str(audio.get("data", "")))
    for key in ("image_url", "video_url", "audio_url", "image", "video", "audio", "file_url", "file_data"):
        value = source.get(key)
        if isinstance(value, dict):
            value = value.get("url")
        if isinstance(value, str):
            return _of_address(value, str(source.get("filename") or ""))
    file = source.get("file")
    if isinstance(file, dict) and isinstance(file.get("file_data"), str):
        return _of_address(file["file_data"], str(file.get("filename") or ""))
    return None


def _of_address(address: str, name: str) -> Medium:
    if match := _DATA_URL.fullmatch(address):
        return Medium(match[1], match[2], name=name)
    return Medium(url=address, name=name)


def chat_part(part: MediaPart) -> dict[str, Any]:
    """A part of a chat message."""
    medium = medium_of(part)
    if medium is None:
        return part.source
    match part.kind:
        case "image":
            return {"type": "image_url", "image_url": {"url": medium.address}}
        case "audio" if medium.data:
            return {
                "type": "input_audio",
                "input_audio": {"data": medium.data, "format": medium.media_type.removeprefix("audio/")},
            }
        case "audio" | "video":
            return {"type": f"{part.kind}_url", f"{part.kind}_url": {"url": medium.address}}
        case "document":
            file = {"file_data": medium.address} | ({"filename": medium.name} if medium.name else {})
            return {"type": "file", "file": file}


def messages_block(part: MediaPart) -> dict[str, Any]:
    """A block of an Anthropic message; that API has pictures and documents."""
    medium = medium_of(part)
    if medium is None or part.kind not in ("image", "document"):
        return part.source
    if medium.url:
        return {"type": part.kind, "source": {"type": "url", "url": medium.url}}
    source = {"type": "base64", "media_type": medium.media_type, "data": medium.data}
    return {"type": part.kind, "source": source} | ({"title": medium.name} if medium.name else {})


def responses_part(part: MediaPart) -> dict[str, Any]:
    """A part of an item of the Responses API."""
    medium = medium_of(part)
    if medium is None:
        return part.source
    match part.kind:
        case "image":
            return {"type": "input_image", "image_url": medium.address}
        case "document":
            named = {"filename": medium.name} if medium.name else {}
            return {"type": "input_file", "file_data": medium.address, **named}
        case _:
            return chat_part(part)
