"""Finding an upstream that answers: routes in order, a place in each one's queue, and again elsewhere what has not begun anywhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from edgewise.core.errors import OverloadedError
from edgewise.gateway.calls import Call
from edgewise.gateway.limits import FairQueue
from edgewise.gateway.metrics import GatewayMetrics
from edgewise.gateway.parts import GatewayParts, NotBegunError, Reply, Route, Upstream
from edgewise.gateway.planning import Plan, Planner
from edgewise.gateway.profile import Api
from edgewise.serving.errors import HttpError

logger = logging.getLogger("edgewise.gateway")

_BUSY = (429, 503)
_FAILED = (500, 502, 504)
_UNTRANSLATED = (Api.COUNT_TOKENS, Api.EMBEDDINGS)
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5


class Begun:
    """An upstream's answer whose status has come. `close` gives everything back, once."""

    def __init__(self, route: Route, plan: Plan, reply: Reply, held: ExitStack) -> None:
        self.route = route
        self.plan = plan
        self.reply = reply
        self._held = held

    async def close(self) -> None:
        try:
            await self.reply.aclose()
        finally:
            self._held.close()


class Attempts:
    """Event loop only."""

    def __init__(self, parts: GatewayParts, planner: Planner, metrics: GatewayMetrics) -> None:
        self._router = parts.router
        self._transport = parts.transport
        self._options = parts.options
        self.planner = planner
        self._metrics = metrics
        self._queues: dict[str, FairQueue] = {}

    def queue_of(self, upstream: Upstream) -> FairQueue:
        queue = self._queues.get(upstream.name)
        if queue is None:
            queue = FairQueue(upstream.max_in_flight, max_waiting=self._options.max_waiting)
            self._queues[upstream.name] = queue
        elif queue.size != upstream.max_in_flight:  # the configuration was read again
            queue.resize(upstream.max_in_flight)
        return queue

    def waiting(self) -> dict[str, float]:
        return {name: queue.num_waiting for name, queue in self._queues.items()}

    async def begin(self, call: Call) -> Begun:
        """The first answer of an upstream, whatever its status; a busy one's only where nobody else is left.

        Where nobody answers now, somebody may in a moment: for `retry_for_s` they are looked for again. Raises HttpError 502 where no upstream could be reached, and what routing, queueing and shaping raise.
        """
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self._options.retry_for_s
        pauses = _pauses()
        routes: list[Route] = []
        while True:
            try:
                routes = self._routes(call)
            except OverloadedError:  # nobody is known to be back: those of before, if any, are asked again
                if not routes and loop.time() >= give_up_s:
                    raise
            if routes and (begun := await self._try_each(call, routes)) is not None:
                return begun
            if routes and loop.time() >= give_up_s:
                raise _unreachable(routes)
            await asyncio.sleep(next(pauses))

    def _routes(self, call: Call) -> list[Route]:
        """Those with a free place first, else as routing has them."""
        routes = self._router.routes(call.model, affinity=call.affinity)
        if call.api in _UNTRANSLATED:
            routes = [route for route in routes if call.api in route.upstream.profile.apis] or routes
        return sorted(routes, key=lambda route: not self.queue_of(route.upstream).has_room)

    def counts_for(self, call: Call) -> Route | None:
        """Who has to be asked in another way to count a prompt; None where an upstream has the route for it."""
        routes = self._routes(call)
        if any(Api.COUNT_TOKENS in route.upstream.profile.apis for route in routes):
            return None
        return routes[0]

    async def _try_each(self, call: Call, routes: Sequence[Route]) -> Begun | None:
        last = len(routes) - 1
        for i, route in enumerate(routes):
            name = route.upstream.name
            try:
                begun = await self._try(call, route, alone=last == 0)
            except NotBegunError as error:
                logger.warning("%s: %s", name, error)
                self._metrics.upstream_errors.labels(name, "unreachable").inc()
                self._metrics.retries.labels(name, "unreachable").inc()
                continue
            except OverloadedError:
                if i == last:
                    raise
                continue
            if begun.reply.status not in _BUSY or i == last:
                return begun
            self._metrics.retries.labels(name, "busy").inc()
            await begun.close()
        return None

    async def _try(self, call: Call, route: Route, *, alone: bool) -> Begun:
        """`alone`: nobody else could answer."""
        upstream = route.upstream
        plan = self.planner.plan(call, route)
        queue = self.queue_of(upstream)
        await queue.enter(call.key, background=call.background)
        with ExitStack() as held:
            held.callback(queue.leave)
            held.enter_context(upstream.lease())
            try:
                reply = await self._transport.send(
                    "POST",
                    upstream.address(plan.path),
                    {**call.headers, "content-type": "application/json", **upstream.headers},
                    plan.body,
                    timeout=self._options.upstream_timeout_s,
                )
            except NotBegunError:
                upstream.failed()
                raise
            if reply.status < 500:
                upstream.succeeded()
            elif reply.status in _FAILED and not alone:
                upstream.failed()  # one that only fails must not keep its share; of a single one its errors say more than our 503
            return Begun(route, plan, reply, held.pop_all())


def _unreachable(routes: Sequence[Route]) -> HttpError:
    names = ", ".join(dict.fromkeys(route.upstream.name for route in routes))
    return HttpError(
        502,
        f"No upstream could be reached for this model (tried: {names}).",
        kind="server_error",
        code="upstream_unreachable",
        headers={"Retry-After": "5"},
    )


def _pauses() -> Iterator[float]:
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
