"""One upstream's state: the circuit breaker by a clock of its own, and what is in flight."""

from __future__ import annotations

import pytest

from edgewise.gateway.config import UpstreamConfig
from edgewise.gateway.profile import Kind
from edgewise.gateway.upstream import CircuitBreaker, Upstream


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(clock: Clock) -> CircuitBreaker:
    breaker = CircuitBreaker(3, 1.0, clock)
    for _ in range(3):
        breaker.record(False)
    return breaker


def test_a_success_in_between_keeps_it_closed(clock: Clock):
    breaker = CircuitBreaker(3, 1.0, clock)
    for ok in (False, False, True, False, False):
        breaker.record(ok)
    assert breaker.allows()
    breaker.record(False)
    assert not breaker.allows()


def test_after_the_pause_one_request_tries_and_a_success_closes(clock: Clock):
    breaker = opened(clock)
    clock.now_s += 0.99
    assert not breaker.allows()
    clock.now_s += 0.02
    assert breaker.allows()
    with breaker.attempt():
        assert not breaker.allows(), "one at a time"
        breaker.record(True)
        assert breaker.allows()
    assert breaker.closed


def test_each_failed_try_doubles_the_pause_up_to_half_a_minute(clock: Clock):
    breaker = opened(clock)
    pauses = []
    for _ in range(8):
        start_s = clock.now_s
        while not breaker.allows():
            clock.now_s += 0.25
        pauses.append(round(clock.now_s - start_s))
        with breaker.attempt():
            breaker.record(False)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_failures_of_requests_from_before_do_not_lengthen_the_pause(clock: Clock):
    breaker = opened(clock)
    for _ in range(20):
        breaker.record(False)
    clock.now_s += 1.0
    assert breaker.allows()


def test_a_try_that_says_nothing_leaves_room_for_the_next(clock: Clock):
    breaker = opened(clock)
    clock.now_s += 1.0
    with breaker.attempt():
        pass
    assert breaker.allows()


def test_what_is_in_flight_is_counted_whatever_ends_it():
    upstream = Upstream(UpstreamConfig("a", "http://x", weight=2.0), CircuitBreaker(3, 1.0))
    with upstream.lease():
        with pytest.raises(RuntimeError), upstream.lease():
            assert (upstream.in_flight, upstream.load) == (2, 1.0)
            raise RuntimeError
        assert upstream.in_flight == 1
    assert upstream.in_flight == 0


def test_only_a_llama_server_is_told_to_load_nothing():
    for kind in Kind:
        address = Upstream(UpstreamConfig("a", "http://x", kind), CircuitBreaker(3, 1.0)).address(
            "/v1/messages"
        )
        expected = "?autoload=false" if kind is Kind.LLAMA else ""
        assert address == f"http://x/v1/messages{expected}"


def test_a_key_is_sent_as_bearer():
    upstream = Upstream(
        UpstreamConfig("a", "http://x", key="k", headers={"x-y": "z"}), CircuitBreaker(3, 1.0)
    )
    assert upstream.headers == {"authorization": "Bearer k", "x-y": "z"}
