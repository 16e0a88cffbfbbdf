"""What of a request was not heeded, or only in part: warned of once per field and client, and counted."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Iterable

logger = logging.getLogger("edgewise.serving")

_MAX_REMEMBERED = 4096
_MAX_FIELD_CHARS = 64
_MAX_COUNTED_FIELDS = 256
_MAX_WARNING_CHARS = 256


class IgnoredFields:
    """Event loop only. Memory is bounded: the oldest (client, field) pairs are forgotten, rare names counted as "other"."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.counts: Counter[str] = Counter()

    def note(self, client: str, path: str, names: Iterable[str]) -> None:
        for name in names:
            short = name[:_MAX_FIELD_CHARS]
            known = short in self.counts or len(self.counts) < _MAX_COUNTED_FIELDS
            self.counts[short if known else "other"] += 1
            if self._first_time((client, short)):
                logger.warning("%s: field %r from %s has no effect and is ignored", path, short, client)

    def warn(self, client: str, path: str, warnings: Iterable[str]) -> None:
        """Warnings that preparing a request gave, such as a schema's keyword that cannot be enforced."""
        for warning in warnings:
            self.counts["relaxed"] += 1
            if self._first_time((client, warning[:_MAX_WARNING_CHARS])):
                logger.warning("%s: %s (from %s)", path, warning, client)

    def _first_time(self, pair: tuple[str, str]) -> bool:
        if pair in self._seen:
            self._seen.move_to_end(pair)
            return False
        self._seen[pair] = None
        if len(self._seen) > _MAX_REMEMBERED:
            self._seen.popitem(last=False)
        return True
