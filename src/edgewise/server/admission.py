"""Bounded admission: how many requests may be inside at once. Beyond that the answer is "try again", at once."""

from __future__ import annotations

from edgewise.core.errors import OverloadedError


class AdmissionGate:
    """Counts the requests inside, waiting and running together. Event loop only, so no lock."""

    __slots__ = ("_size", "num_inside", "num_refused")

    def __init__(self, size: int) -> None:
        self._size = size
        self.num_inside = 0
        self.num_refused = 0

    def enter(self) -> Ticket:
        """A place inside. Raises OverloadedError when there is none; never waits."""
        if self.num_inside >= self._size:
            self.num_refused += 1
            raise OverloadedError(f"The server is busy: {self.num_inside} requests are waiting or running.")
        self.num_inside += 1
        return Ticket(self)


class Ticket:
    """One place inside, given back once; as a context manager too."""

    __slots__ = ("_gate",)

    def __init__(self, gate: AdmissionGate) -> None:
        self._gate: AdmissionGate | None = gate

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        if self._gate is not None:
            self._gate.num_inside -= 1
            self._gate = None
