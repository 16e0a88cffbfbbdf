"""The input of a kept response as OpenAI's lists show it: items in full, by pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgewise.serving.errors import HttpError
from edgewise.serving.response_store import Item

_MAX_PAGE = 100
_PAGE = 20


def listed(item: Item, response_id: str, place: int) -> Item:
    """An input item in its full form: with an id, a type, and content as parts."""
    kind = item.get("type") or "message"
    full = {"id": f"in_{response_id.removeprefix('resp_')}_{place}", **item, "type": kind}
    if kind == "message" and isinstance(text := item.get("content"), str):
        part = "output_text" if item.get("role") == "assistant" else "input_text"
        full["content"] = [{"type": part, "text": text}]
    return full


def page_of(stored: Sequence[Item], response_id: str, query: Mapping[str, str]) -> dict[str, Any]:
    """A page of a response's input, newest first unless `order` says asc, as OpenAI's lists are read: `limit`, `after`. Raises HttpError 400."""
    items = [listed(item, response_id, i) for i, item in enumerate(stored)]
    if query.get("order", "desc") != "asc":
        items = items[::-1]
    if after := query.get("after"):
        place = next((i for i, item in enumerate(items) if item["id"] == after), None)
        if place is None:
            raise HttpError(400, f"after must be the id of an item of the list, got '{after}'.")
        items = items[place + 1 :]
    limit = query.get("limit", str(_PAGE))
    if not limit.isdecimal() or not 1 <= int(limit) <= _MAX_PAGE:
        raise HttpError(400, f"limit must be a number from 1 to {_MAX_PAGE}, got '{limit}'.")
    page = items[: int(limit)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > len(page),
    }
