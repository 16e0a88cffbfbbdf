"""Who may answer a request: the upstream's own name, then aliases, then loaded models in the order of preference, then the default.

Upstreams that serve one model are its replicas. A conversation goes to the same replica each time, by rendezvous hashing of its affinity over the
replicas' weights, as long as that replica is not much busier than the others; the others follow as fail-over. When a replica dies, only its
conversations move, each to its own second choice; what is lost is their cached prefixes there, so the next request of each of them is
prefilled whole. They go back when it returns. Event loop only.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgewise.core.errors import InvalidRequestError, OverloadedError
from edgewise.gateway.config import GatewayConfig
from edgewise.gateway.profile import ModelCard
from edgewise.gateway.upstream import Upstream

_SLACK = 1.25  # a replica takes this much more than its share before a conversation leaves it
_RETRY_AFTER_S = 2


@dataclass(frozen=True, slots=True)
class Route:
    """An upstream, and the name of the model to send it."""

    upstream: Upstream
    model: str


class Router:
    """`upstreams` are in order of preference. `replace` puts a new configuration in place between two requests."""

    def __init__(self, config: GatewayConfig, upstreams: Sequence[Upstream]) -> None:
        self.replace(config, upstreams)

    def replace(self, config: GatewayConfig, upstreams: Sequence[Upstream]) -> None:
        self._config = config
        self.upstreams: Sequence[Upstream] = tuple(upstreams)

    @property
    def aliases(self) -> Mapping[str, str]:
        """Further names, of models or upstreams."""
        return self._config.aliases

    def routes(self, model: str, *, affinity: str = "") -> list[Route]:
        """Where a request may go, best first; every route's model is loaded there as far as its upstream says.

        Raises InvalidRequestError model_not_found for a name that nobody has, if those get no default; OverloadedError where nobody
        who has it answers now.
        """
        own = self._named(model)
        name = model if own else self._config.aliases.get(model, model)
        found = own or self._named(name) or self._loaded(name)
        if not found:
            self._look_again()
            if self._config.strict_model_names and name:
                raise self._unknown(name)
            found = self._of_default()
        routes = self._available(found, affinity)
        return sorted(
            routes, key=lambda route: route.upstream.name != name
        )  # who is named answers, if it can

    def _named(self, name: str) -> list[Route]:
        """The upstream of that name and its model's replicas."""
        own = next((one for one in self.upstreams if one.name == name), None)
        return [] if own is None else self._replicas(own)

    def _loaded(self, name: str) -> list[Route]:
        """Everybody who has the model of that name loaded: the first in order says which model the name means."""
        for upstream in self.upstreams:
            card = next((card for card in upstream.loaded_models if _is_called(card, name)), None)
            if card is not None:
                return self._with_model(card.id, upstream, named=name)
        return []

    def _of_default(self) -> list[Route]:
        """The default's model, or that of the first upstream in order that has one loaded."""
        wanted = self._config.default
        ordered = sorted(self.upstreams, key=lambda one: one.name != wanted) if wanted else self.upstreams
        return next((routes for one in ordered if (routes := self._replicas(one))), [])

    def _replicas(self, upstream: Upstream) -> list[Route]:
        card = next(upstream.loaded_models, None)
        return [] if card is None else self._with_model(card.id, upstream, named=card.id)

    def _with_model(self, model: str, first: Upstream, *, named: str) -> list[Route]:
        """`first` and everybody else who has the model loaded, under its id or the name that was asked for."""
        routes = [Route(first, model)]
        for upstream in self.upstreams:
            if upstream is not first:
                cards = list(upstream.loaded_models)
                card = next((one for one in cards if _is_called(one, model)), None) or next(
                    (one for one in cards if _is_called(one, named)), None
                )
                routes += [] if card is None else [Route(upstream, card.id)]
        return routes

    def _available(self, routes: list[Route], affinity: str) -> list[Route]:
        healthy = [route for route in routes if route.upstream.healthy]
        if not healthy:
            raise self._nobody(routes)
        return in_order(healthy, affinity)

    def _look_again(self) -> None:
        """A model that was loaded a moment ago is not in the list yet."""
        for upstream in self.upstreams:
            if upstream.profile.models:
                upstream.look_again()

    def _unknown(self, name: str) -> Exception:
        unlearned = [one.name for one in self.upstreams if not one.known]
        if unlearned:
            return OverloadedError(
                f"Nobody is known to serve {name!r}, but {', '.join(unlearned)} has not answered yet.",
                retry_after_s=_RETRY_AFTER_S,
            )
        listed = any(_is_called(card, name) for one in self.upstreams for card in one.profile.models)
        message = f"The model {name!r} is " + ("not loaded." if listed else "not served here.")
        return InvalidRequestError(message, param="model", code="model_not_found")

    def _nobody(self, routes: Iterable[Route]) -> OverloadedError:
        concerned = [route.upstream for route in routes] or self.upstreams
        reasons = "; ".join(f"{one.name}: {one.trouble or 'no model is loaded'}" for one in concerned)
        return OverloadedError(
            f"Nobody answers for this model now ({reasons or 'no engine is loaded'}).",
            retry_after_s=_RETRY_AFTER_S,
        )


def in_order(routes: Sequence[Route], affinity: str) -> list[Route]:
    """Replicas, the one to ask first. Those of weight 0 come last, in the order given."""
    spare = [route for route in routes if route.upstream.config.weight == 0]
    regular = [route for route in routes if route.upstream.config.weight > 0]
    if len(regular) < 2:
        return regular + spare
    if not affinity:
        return sorted(regular, key=lambda route: route.upstream.load) + spare
    ranked = sorted(regular, key=lambda route: -_score(affinity, route.upstream))
    chosen = _first_with_room(ranked)
    return [chosen, *(route for route in ranked if route is not chosen), *spare]


def _first_with_room(ranked: Sequence[Route]) -> Route:
    """Consistent hashing with bounded loads: the first replica that has not more than `_SLACK` times its share of what is in flight."""
    upstreams = [route.upstream for route in ranked]
    total = sum(one.in_flight for one in upstreams) + 1
    weights = sum(one.config.weight for one in upstreams)
    for route in ranked:
        share = route.upstream.config.weight / weights
        if route.upstream.in_flight < math.ceil(_SLACK * total * share):
            return route
    return min(ranked, key=lambda route: route.upstream.load)


def _score(affinity: str, upstream: Upstream) -> float:
    """Weighted rendezvous hashing: -w / ln(h) with h spread evenly over (0, 1)."""
    digest = hashlib.blake2b(
        f"{upstream.name}\0{affinity}".encode("utf-8", "replace"), digest_size=8
    ).digest()
    even = (int.from_bytes(digest) + 0.5) / 2**64
    return -upstream.config.weight / math.log(even)


def _is_called(card: ModelCard, name: str) -> bool:
    return name == card.id or name in card.aliases
