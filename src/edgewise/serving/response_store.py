"""Responses kept for clients that come back to them: GET and DELETE by id, `previous_response_id`, item references.

In memory, bounded by number and by bytes; what was used longest ago goes first. Each entry holds its whole context, so one that is
forgotten breaks no other. Every entry has an owner, and for everybody else there is no such response.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

logger = logging.getLogger("edgewise.serving")

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response that has ended. `items` is the input it was made from, that of earlier responses included."""

    response: dict[str, Any]
    items: tuple[Item, ...]
    size_bytes: int


class ResponseStore:
    """Everybody's responses, within common bounds; `of` shows one owner's. Any thread."""

    def __init__(self, max_responses: int, max_bytes: int) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._entries: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()  # by owner and id
        self._lock = threading.Lock()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, owner: str) -> OwnResponses:
        """`owner` names whoever asks: an API key's id, or "" where nobody has a key."""
        return OwnResponses(self, owner)

    def put(self, owner: str, response: dict[str, Any], items: Sequence[Item]) -> None:
        """Keep an ended response; it must not change any more."""
        size = len(orjson.dumps((response, items)))
        if size > self._max_bytes:
            logger.warning("a response of %d bytes is larger than the whole store and not kept", size)
            return
        with self._lock:
            self._forget(owner, response["id"])
            self._entries[owner, response["id"]] = StoredResponse(response, tuple(items), size)
            self.size_bytes += size
            while len(self._entries) > self._max_responses or self.size_bytes > self._max_bytes:
                self.size_bytes -= self._entries.popitem(last=False)[1].size_bytes

    def get(self, owner: str, response_id: str) -> StoredResponse | None:
        with self._lock:
            if (entry := self._entries.get((owner, response_id))) is not None:
                self._entries.move_to_end((owner, response_id))
            return entry

    def delete(self, owner: str, response_id: str) -> bool:
        """Whether there was one."""
        with self._lock:
            return self._forget(owner, response_id)

    def _forget(self, owner: str, response_id: str) -> bool:
        if (entry := self._entries.pop((owner, response_id), None)) is None:
            return False
        self.size_bytes -= entry.size_bytes
        return True

    def newest_first(self, owner: str) -> list[StoredResponse]:
        with self._lock:
            return [entry for key, entry in reversed(self._entries.items()) if key[0] == owner]


class OwnResponses:
    """One owner's responses: there are no others. Any thread. Implements `protocols.responses.Earlier`."""

    def __init__(self, store: ResponseStore, owner: str) -> None:
        self._store = store
        self.owner = owner

    def put(self, response: dict[str, Any], items: Sequence[Item]) -> None:
        self._store.put(self.owner, response, items)

    def get(self, response_id: str) -> StoredResponse | None:
        return self._store.get(self.owner, response_id)

    def delete(self, response_id: str) -> bool:
        return self._store.delete(self.owner, response_id)

    def context_of(self, response_id: str) -> list[Item] | None:
        """Input and output of a response, as the input of the next. A call that was cut off is no part of it."""
        if (entry := self.get(response_id)) is None:
            return None
        return [*entry.items, *(item for item in entry.response["output"] if not _cut_off(item))]

    def item(self, item_id: str) -> Item | None:
        """An input or output item by its id, the newest first."""
        for entry in self._store.newest_first(self.owner):
            outputs: list[Item] = entry.response["output"]
            for item in (*outputs, *entry.items):
                if item.get("id") == item_id:
                    return item
        return None


def _cut_off(item: Item) -> bool:
    return item.get("type") in ("function_call", "custom_tool_call") and item.get("status") == "incomplete"
