"""Media: data: URLs pass. Nothing else does: an upstream that fetches what a client names can be sent anywhere, its own host included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgewise.core.errors import InvalidRequestError
from edgewise.gateway.profile import Api
from edgewise.gateway.shaping.step import Body, Context, Step

_KINDS = (
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
_BLOCKS = ("image", "document", "video", "audio")
_APIS = (Api.CHAT, Api.MESSAGES, Api.COUNT_TOKENS, Api.RESPONSES)
Holder = tuple[dict[str, Any], str]


def _addresses(part: dict[str, Any]) -> Iterator[Holder]:
    """Where a part names an address: the object that holds it and the key."""
    kind = part.get("type")
    if kind not in _KINDS and kind not in _BLOCKS:
        return
    for name in (*_KINDS, "source"):
        value = part.get(name)
        if isinstance(value, str) and name != "source":
            yield part, name
        elif isinstance(value, dict) and isinstance(value.get("url"), str):
            yield value, "url"
    if isinstance(part.get("url"), str):
        yield part, "url"
    frames = part.get("frames")
    if isinstance(frames, list) and frames:
        yield part, "frames"


def _inlined(part: dict[str, Any], path: str, context: Context) -> dict[str, Any]:
    """A part without addresses, or the same part. Raises InvalidRequestError, naming it."""
    for holder, key in _addresses(part):
        address = holder[key]
        if isinstance(address, str) and address.startswith("data:"):
            continue
        remote = isinstance(address, str) and address.startswith(("http://", "https://"))
        if not remote or context.fetch is None:
            raise InvalidRequestError(
                f"{path}: media must be sent as data: URLs; addresses and files are not fetched here.",
                param=path,
                code="remote_media",
            )
        part = _replaced(part, holder, key, context.fetch(address))
    return part


def _replaced(part: dict[str, Any], holder: dict[str, Any], key: str, data_url: str) -> dict[str, Any]:
    """The part with data in an address's place; Anthropic has a form of its own for it."""
    if holder is part:
        return {**part, key: data_url}
    name = next(name for name, value in part.items() if value is holder)
    if name == "source":
        head, _, data = data_url.partition(",")
        media_type = head.removeprefix("data:").partition(";")[0]
        return {**part, name: {"type": "base64", "media_type": media_type, "data": data}}
    return {**part, name: {**holder, key: data_url}}


def _walk(value: Any, path: str, context: Context) -> Any:
    """Contents, and contents within tool results; the same object where nothing was inlined."""
    if not isinstance(value, list):
        return value
    changed = []
    for i, one in enumerate(value):
        if isinstance(one, dict):
            where = f"{path}[{i}]"
            new = _inlined(one, where, context)
            for name in ("content", "output"):
                inner = _walk(new.get(name), f"{where}.{name}", context)
                if inner is not new.get(name):
                    new = {**new, name: inner}
            one = new
        changed.append(one)
    return value if all(new is old for new, old in zip(changed, value, strict=True)) else changed


def _inline(body: Body, context: Context) -> Body:
    name = "input" if context.api is Api.RESPONSES else "messages"
    changed = _walk(body.get(name), name, context)
    return body if changed is body.get(name) else {**body, name: changed}


MEDIA_STEPS = (Step("media-inlined", lambda profile, api: api in _APIS, _inline),)
