"""A gateway over scripted upstreams: real transport, routing by a fixed list, a real server on loopback."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewise.core.errors import InvalidRequestError
from edgewise.gateway.app import create_gateway
from edgewise.gateway.parts import ForwardOptions, GatewayParts
from edgewise.gateway.profile import Api, Kind, ModelCard, Profile
from edgewise.gateway.transport import HttpTransport
from edgewise.serving.listening import Server, bind, url_of


@dataclass
class FixedUpstream:
    name: str
    url: str
    profile: Profile
    headers: Mapping[str, str] = field(default_factory=dict)
    max_in_flight: int | None = None
    in_flight: int = 0
    healthy: bool = True
    num_failed: int = 0

    def address(self, path: str) -> str:
        return self.url + path

    @contextlib.contextmanager
    def lease(self) -> Iterator[None]:
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    def succeeded(self) -> None:
        pass

    def failed(self) -> None:
        self.num_failed += 1


@dataclass
class FixedRoute:
    upstream: FixedUpstream
    model: str


class FixedRouter:
    """Every upstream with the model, in order; the first one for names nobody has."""

    def __init__(self, upstreams: Sequence[FixedUpstream], *, strict: bool = False) -> None:
        self.upstreams = upstreams
        self.aliases: Mapping[str, str] = {"by-another-name": "m"}
        self._strict = strict

    def routes(self, model: str, *, affinity: str) -> list[FixedRoute]:
        routes = [
            FixedRoute(one, card.id)
            for one in self.upstreams
            for card in one.profile.models
            if model in (card.id, *card.aliases)
        ]
        if not routes and self._strict:
            raise InvalidRequestError(f"no model {model!r}", param="model", code="model_not_found")
        first = self.upstreams[0]
        return routes or [FixedRoute(first, first.profile.models[0].id)]


def upstream(
    url: str,
    name: str = "one",
    *,
    model: str = "m",
    kind: Kind = Kind.OPENAI,
    apis: Sequence[Api] = (Api.CHAT,),
    **fields: Any,
) -> FixedUpstream:
    card = ModelCard(model, window=4096, max_input=2048)
    return FixedUpstream(name, url, Profile(kind, apis=frozenset(apis), models=(card,)), **fields)


@contextlib.contextmanager
def gateway(*upstreams: FixedUpstream, strict: bool = False, **fields: Any) -> Iterator[str]:
    """A running gateway's address. `fields` are those of GatewayParts and ForwardOptions."""
    own = {name: fields.pop(name) for name in ("keys", "routes", "startup", "shutdown") if name in fields}
    parts = GatewayParts(
        router=FixedRouter(upstreams, strict=strict),
        transport=HttpTransport(),
        options=ForwardOptions(**fields),
        **own,
    )
    with serving_app(create_gateway(parts)) as url:
        yield url


@contextlib.contextmanager
def serving_app(app: Any) -> Iterator[str]:
    listener = bind("127.0.0.1", 0)
    ready = threading.Event()
    server = Server(app, listener, ready.set, drain_timeout_s=2)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
        assert not thread.is_alive(), "the gateway did not stop"
