"""Waiting for another thread to get somewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 5.0) -> None:
    """Fails the test when the condition does not hold in time."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "did not happen in time"
        time.sleep(0.002)


def pool_is_idle(engine: Any) -> bool:
    """Nothing runs or waits, and no running sequence holds a block."""
    stats = engine.stats()
    return stats.num_running == 0 and stats.num_waiting == 0 and stats.kv_usage == 0.0
