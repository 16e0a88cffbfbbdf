"""Media: data: URLs pass. Nothing else does: an upstream that fetches what a client names can be sent anywhere, its own host included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgewise.core.errors import InvalidRequestError
from edgewise.gateway.profile import Api
from edgewise.gateway.shaping.step import Body, Context, Step

_NAMES = (
    "image_url",
    "audio_url",
    "video_url",
    "file_url",
    "image",
    "audio",
    "video",
    "input_image",
    "input_file",
)
"""Kinds of parts, and the keys under which parts hold an address, or an object with a `url`."""

_KINDS = frozenset((*_NAMES, "document"))
_APIS = (Api.CHAT, Api.MESSAGES, Api.COUNT_TOKENS, Api.RESPONSES)


def _addresses(part: dict[str, Any]) -> Iterator[Any]:
    """Whatever a part names as the place of its data."""
    for name in _NAMES:
        value = part.get(name)
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict) and isinstance(value.get("url"), str):
            yield value["url"]
    source = part.get("source")
    for holder in (part, source if isinstance(source, dict) else {}):
        if isinstance(holder.get("url"), str):
            yield holder["url"]
    if frames := part.get("frames"):
        yield from frames if isinstance(frames, list) else [frames]


def _check(value: Any, path: str) -> None:
    """Contents, and contents within tool results. Raises InvalidRequestError, naming the part."""
    if not isinstance(value, list):
        return
    for i, part in enumerate(value):
        if not isinstance(part, dict):
            continue
        kind = part.get("type")
        if isinstance(kind, str) and kind in _KINDS:
            for address in _addresses(part):
                if not (isinstance(address, str) and address.startswith("data:")):
                    raise _not_fetched(f"{path}[{i}]")
        for name in ("content", "output"):
            if isinstance(inner := part.get(name), list):
                _check(inner, f"{path}[{i}].{name}")


def _not_fetched(path: str) -> InvalidRequestError:
    message = f"{path}: media must be sent as data: URLs; addresses and files are not fetched here."
    return InvalidRequestError(message, param=path, code="remote_media")


def _refuse_addresses(body: Body, context: Context) -> Body:
    name = "input" if context.api is Api.RESPONSES else "messages"
    _check(body.get(name), name)
    return body


MEDIA_STEPS = (Step("media-addresses", lambda profile, api: api in _APIS, _refuse_addresses),)
