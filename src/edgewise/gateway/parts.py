"""What a gateway is made of: the doors of forwarding to the rooms beside it, and its knobs. The command line puts them together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from starlette.routing import BaseRoute

from edgewise.core.errors import EdgewiseError
from edgewise.gateway.keys import KeyStore, OpenDoor
from edgewise.gateway.profile import Profile


class NotBegunError(EdgewiseError):
    """An upstream could not be reached, or let go of the connection before it answered."""


class BrokenReplyError(EdgewiseError):
    """An upstream's answer ended before it was complete."""


class Reply(Protocol):
    """An upstream's answer, its status here and its body still coming. Header names are lower case."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises BrokenReplyError where it ends before it should."""
        ...

    async def read(self) -> bytes: ...

    async def aclose(self) -> None:
        """Let go of it; the connection is closed unless the body was read to its end."""
        ...


class Transport(Protocol):
    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, timeout: float | None
    ) -> Reply:
        """Until the status has come. Raises NotBegunError where it did not: nothing was answered then."""
        ...


class Upstream(Protocol):
    @property
    def name(self) -> str: ...

    def address(self, path: str) -> str:
        """Where a request for a path is sent."""
        ...

    @property
    def profile(self) -> Profile: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Sent with every request, such as the upstream's own key."""
        ...

    @property
    def max_in_flight(self) -> int | None: ...

    @property
    def in_flight(self) -> int: ...

    @property
    def healthy(self) -> bool: ...

    def lease(self) -> AbstractContextManager[None]: ...

    def succeeded(self) -> None: ...

    def failed(self) -> None: ...


class Route(Protocol):
    @property
    def upstream(self) -> Upstream: ...

    @property
    def model(self) -> str:
        """The name to send."""
        ...


class Router(Protocol):
    @property
    def upstreams(self) -> Sequence[Upstream]: ...

    @property
    def aliases(self) -> Mapping[str, str]:
        """Further names, of models or upstreams."""
        ...

    def routes(self, model: str, *, affinity: str) -> Sequence[Route]:
        """Where a request may go, best first. Raises InvalidRequestError model_not_found, OverloadedError where all are down."""
        ...


@dataclass(frozen=True, slots=True)
class ForwardOptions:
    """Knobs of forwarding."""

    max_body_bytes: int = 32 << 20
    body_timeout_s: float = 60.0
    commit_after_s: float = (
        10.0  # how long a streamed request waits for its upstream's status before its own 200
    )
    keep_alive_s: float = 10.0
    upstream_timeout_s: float = 3600.0  # silence of an upstream, prefill included
    retry_for_s: float = (
        2.0  # how long an upstream that refuses connections is tried again: it may be restarting
    )
    max_waiting: int = 1024  # requests in the queue of one upstream
    max_stored_responses: int = 1000
    max_stored_response_bytes: int = 64 << 20
    root_path: str = ""
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """`routes`: further pages, answered without a key unless they ask for one themselves. `startup` and `shutdown` run with the application."""

    router: Router
    transport: Transport
    keys: KeyStore = field(default_factory=OpenDoor)
    options: ForwardOptions = ForwardOptions()
    routes: Sequence[BaseRoute] = ()
    startup: Sequence[Callable[[], Awaitable[None]]] = field(default_factory=tuple)
    shutdown: Sequence[Callable[[], Awaitable[None]]] = field(default_factory=tuple)
