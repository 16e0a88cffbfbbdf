"""One upstream as the gateway sees it now: what was learned of it, whether it answers, how much it is doing. Event loop only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from time import monotonic

from edgewise.gateway.config import UpstreamConfig
from edgewise.gateway.profile import Kind, ModelCard, Profile

_LONGEST_PAUSE_S = 30.0


class CircuitBreaker:
    """Leaves an upstream alone after failures in a row, then lets one request try it; each failed try doubles the pause."""

    def __init__(self, failures: int, pause_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._limit = failures
        self._first_pause_s = pause_s
        self._pause_s = pause_s
        self._clock = clock
        self._num_failed = 0
        self._open_until_s: float | None = None
        self._trying = False

    @property
    def closed(self) -> bool:
        return self._open_until_s is None

    def allows(self) -> bool:
        """Whether a request may be sent: always while closed, one at a time after the pause."""
        if self._open_until_s is None:
            return True
        return not self._trying and self._clock() >= self._open_until_s

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Round a request: while open, it is the one that tries."""
        trial = not self.closed and not self._trying
        self._trying |= trial
        try:
            yield
        finally:
            if trial:
                self._trying = False

    def record(self, ok: bool) -> None:
        if ok:
            self.reset()
            return
        self._num_failed += 1
        if self._open_until_s is not None and self._clock() >= self._open_until_s:
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._open_until_s = self._clock() + self._pause_s
        elif self._open_until_s is None and self._num_failed >= self._limit:
            self._open_until_s = self._clock() + self._pause_s

    def reset(self) -> None:
        """As if nothing had failed."""
        self._num_failed = 0
        self._pause_s = self._first_pause_s
        self._open_until_s = None


class Upstream:
    """`config` may be exchanged while requests run. `known`: it has been learned since the start."""

    def __init__(self, config: UpstreamConfig, breaker: CircuitBreaker) -> None:
        self.config = config
        self.breaker = breaker
        self.profile = Profile(config.kind or Kind.OPENAI, models=_stated(config))
        self.known = False
        self.answers = False
        self.slots: int | None = None
        self.trouble = "it has not been asked yet"
        self.wanted = asyncio.Event()  # somebody wants it looked at now
        self._in_flight = 0

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def url(self) -> str:
        return self.config.url

    def address(self, path: str) -> str:
        """Where to send a request for a path. A llama-server router is told each time that no request is to load anything."""
        query = "?autoload=false" if self.profile.kind is Kind.LLAMA else ""
        return self.config.url + path + query

    @property
    def headers(self) -> Mapping[str, str]:
        """Sent with every request: its key, and what the configuration adds."""
        key = {} if self.config.key is None else {"authorization": f"Bearer {self.config.key}"}
        return {**key, **self.config.headers}

    @property
    def max_in_flight(self) -> int | None:
        return self.config.max_in_flight or self.slots

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def load(self) -> float:
        """Requests in flight, per weight."""
        return self._in_flight / (self.config.weight or 1.0)

    @property
    def healthy(self) -> bool:
        return self.answers and self.breaker.allows()

    @property
    def loaded_models(self) -> Iterator[ModelCard]:
        return (card for card in self.profile.models if card.loaded)

    @contextlib.contextmanager
    def lease(self) -> Iterator[None]:
        """Round a request from its sending to the end of its answer."""
        self._in_flight += 1
        try:
            with self.breaker.attempt():
                yield
        finally:
            self._in_flight -= 1

    def succeeded(self) -> None:
        """A request was answered. Whoever is not known to be back yet, is."""
        self.breaker.record(True)
        if not self.answers and self.known:
            self.answers, self.trouble = True, ""

    def failed(self) -> None:
        self.breaker.record(False)
        self.wanted.set()

    def look_again(self) -> None:
        """Ask soon what it has: somebody named a model that is not known."""
        self.wanted.set()


def _stated(config: UpstreamConfig) -> tuple[ModelCard, ...]:
    return tuple(ModelCard(name) for name in config.models)
