"""Who may go on, and when: limits of each key, and the queue before an upstream that takes only so many requests at once.

The queue is fair twice. Interactive requests go before background ones, but one of every `_BACKGROUND_SHARE` places is a
background request's, so that it ends some day. Within each class keys take turns by start-time fair queueing (Goyal, Vin and
Cheng, 1996): a key's next request starts 1/weight after its last, never before what is being served now, so a key that was idle
saves nothing up and a key that sends a hundred at once waits behind each other key's first.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections import OrderedDict
from collections.abc import Callable

from edgewise.core.errors import OverloadedError
from edgewise.core.keys import KeyRecord
from edgewise.serving.errors import HttpError

_BACKGROUND_SHARE = 8
_MAX_REMEMBERED = 10_000  # keys whose last requests are known


class KeyGate:
    """Concurrency and rate of each key. Event loop only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._inside: dict[str, int] = {}
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens left, as of when

    def enter(self, key: KeyRecord) -> None:
        """Count a request in. Raises HttpError 429 with Retry-After; `leave` belongs to every `enter` that did not."""
        inside = self._inside.get(key.id, 0)
        limit = key.limits.max_concurrent
        if limit is not None and inside >= limit:
            raise _too_many(f"This key may have {limit} requests running at once, and has.", 1.0)
        if key.limits.requests_per_minute is not None:
            self._take_token(key.id, key.limits.requests_per_minute)
        self._inside[key.id] = inside + 1

    def leave(self, key: KeyRecord) -> None:
        if (inside := self._inside[key.id] - 1) == 0:
            del self._inside[key.id]
        else:
            self._inside[key.id] = inside

    def _take_token(self, key_id: str, per_minute: float) -> None:
        """A bucket that holds a minute's requests and fills evenly."""
        now = self._clock()
        per_second = per_minute / 60
        size = max(1.0, per_minute)
        tokens, since = self._buckets.pop(key_id, (size, now))
        tokens = min(size, tokens + (now - since) * per_second)
        self._buckets[key_id] = (tokens if tokens < 1 else tokens - 1, now)
        if len(self._buckets) > _MAX_REMEMBERED:
            self._buckets.popitem(last=False)
        if tokens < 1:
            message = f"This key may send {per_minute:g} requests a minute, and has."
            raise _too_many(message, (1 - tokens) / per_second)


def _too_many(message: str, wait_s: float) -> HttpError:
    headers = {"Retry-After": str(max(1, math.ceil(wait_s)))}
    return HttpError(429, message, kind="rate_limit_error", code="rate_limit_exceeded", headers=headers)


class _Waiting:
    """One request in the queue. `start` is its virtual start time."""

    __slots__ = ("future", "start")

    def __init__(self, start: float, future: asyncio.Future[None]) -> None:
        self.start = start
        self.future = future


class FairQueue:
    """The places of one upstream. Event loop only. `size` None: no limit, and nobody waits."""

    def __init__(self, size: int | None, *, max_waiting: int = 1024) -> None:
        self.size = size
        self._max_waiting = max_waiting
        self.num_inside = 0
        self._order = itertools.count()
        self._waiting: tuple[list[tuple[float, int, _Waiting]], ...] = ([], [])  # interactive, background
        self._served = [0.0, 0.0]  # virtual time of each class
        self._last: OrderedDict[tuple[str, bool], float] = OrderedDict()
        self._grants = 0

    @property
    def has_room(self) -> bool:
        return self.size is None or (self.num_inside < self.size and self.num_waiting == 0)

    @property
    def num_waiting(self) -> int:
        return sum(not one.future.done() for heap in self._waiting for _, _, one in heap)

    async def enter(self, key: KeyRecord, *, background: bool = False) -> None:
        """A place, when it is this request's turn. Raises OverloadedError where too many wait. `leave` gives it back."""
        start = self._start_of(key, background)
        if self.has_room:
            self._serve(start, background)
            return
        if self.num_waiting >= self._max_waiting:
            raise OverloadedError(f"The queue is full: {self.num_waiting} requests are waiting.")
        waiting = _Waiting(start, asyncio.get_running_loop().create_future())
        heapq.heappush(self._waiting[background], (start, next(self._order), waiting))
        try:
            await waiting.future
        except asyncio.CancelledError:
            if waiting.future.done() and not waiting.future.cancelled():  # a place came just now
                self.leave()
            raise

    def leave(self) -> None:
        self.num_inside -= 1
        self._let_in()

    def resize(self, size: int | None) -> None:
        self.size = size
        self._let_in()

    def _start_of(self, key: KeyRecord, background: bool) -> float:
        """The virtual start time of a key's next request, which is remembered as its last."""
        name = (key.id, background)
        start = max(self._served[background], self._last.pop(name, 0.0))
        self._last[name] = start + 1 / max(key.limits.weight, 1e-3)
        if len(self._last) > _MAX_REMEMBERED:
            self._last.popitem(last=False)
        return start

    def _serve(self, start: float, background: bool) -> None:
        self.num_inside += 1
        self._served[background] = max(self._served[background], start)

    def _let_in(self) -> None:
        while self.size is None or self.num_inside < self.size:
            self._grants += 1
            first = self._grants % _BACKGROUND_SHARE == 0
            chosen = self._pop(first)
            background = first
            if chosen is None:
                background = not first
                chosen = self._pop(background)
            if chosen is None:
                return
            self._serve(chosen.start, background)
            chosen.future.set_result(None)

    def _pop(self, background: bool) -> _Waiting | None:
        heap = self._waiting[background]
        while heap:
            waiting = heapq.heappop(heap)[2]
            if not waiting.future.done():  # else its client left
                return waiting
        return None
