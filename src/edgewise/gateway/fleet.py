"""The upstreams together: made from the configuration, watched, and exchanged when it is read again. Event loop only."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from edgewise.gateway.config import GatewayConfig, UpstreamConfig
from edgewise.gateway.learning import Learner, NoProfiles, ProfileStore
from edgewise.gateway.parts import Transport
from edgewise.gateway.routing import Router
from edgewise.gateway.upstream import CircuitBreaker, Upstream

logger = logging.getLogger("edgewise.gateway")

_SOON_S = 0.2  # between two looks at an upstream, however often it is wanted
_KNOWN_S = 0.01  # between two looks at whether one was looked at
_DOWN_S = 1.0  # at the longest, between two looks at one that is down


class Fleet:
    """`router` is there from the beginning; it knows models once `start` has returned."""

    def __init__(
        self, config: GatewayConfig, transport: Transport, profiles: ProfileStore | None = None
    ) -> None:
        self._config = config
        self._learner = Learner(transport, config, profiles or NoProfiles())
        self._upstreams = [_made(one, config) for one in config.upstreams]
        self._tasks: dict[Upstream, asyncio.Task[None]] = {}
        self.router = Router(config, self._upstreams)

    @property
    def upstreams(self) -> list[Upstream]:
        return list(self._upstreams)

    async def start(self) -> None:
        """Look at every upstream once, then go on watching. Those that do not answer are no reason to wait long, or to fail."""
        await asyncio.gather(*(self._first_look(one) for one in self._upstreams))
        for upstream in self._upstreams:
            self._watch(upstream)

    async def _first_look(self, upstream: Upstream) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * self._config.ask_timeout_s):
                await self._look(upstream, wanted=False)

    async def stop(self) -> None:
        tasks = [*self._tasks.values()]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def reload(self, config: GatewayConfig) -> None:
        """Put a new configuration in place. An upstream that is asked in the same way as before keeps what is known of it and its
        requests; requests of one that is gone run to their end.
        """
        before = {_identity(one.config): one for one in self._upstreams}
        kept = []
        for one in config.upstreams:
            upstream = before.pop(_identity(one), None)
            if upstream is None:
                upstream = _made(one, config)
                self._watch(upstream)
            upstream.config = one
            upstream.look_again()
            kept.append(upstream)
        for gone in before.values():
            if (task := self._tasks.pop(gone, None)) is not None:
                task.cancel()
            self._learner.forget(gone)
        self._config = self._learner.config = config
        self._upstreams = kept
        self.router.replace(config, kept)

    async def known(self, name: str) -> None:
        """Wait, not for long, until an upstream was looked at: then requests find its models."""
        upstream = next((one for one in self._upstreams if one.name == name), None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.ask_timeout_s):
                while upstream is not None and not upstream.known:
                    await asyncio.sleep(_KNOWN_S)

    def _watch(self, upstream: Upstream) -> None:
        self._tasks[upstream] = asyncio.get_running_loop().create_task(
            self._keep_looking(upstream), name=f"watch {upstream.name}"
        )

    async def _keep_looking(self, upstream: Upstream) -> None:
        if not upstream.known:
            await self._look(upstream, wanted=False)
        while True:
            pause_s = self._config.health_s if upstream.answers else min(self._config.health_s, _DOWN_S)
            await asyncio.sleep(min(_SOON_S, pause_s))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(pause_s - _SOON_S, 0.01)):
                    await upstream.wanted.wait()
            wanted = upstream.wanted.is_set()
            upstream.wanted.clear()
            await self._look(upstream, wanted=wanted)

    async def _look(self, upstream: Upstream, *, wanted: bool) -> None:
        try:
            await self._learner.look(upstream, wanted=wanted)
        except Exception:  # an answer nobody thought of must not end the watch
            logger.exception("%s: its answer could not be read", upstream.name)


def _identity(config: UpstreamConfig) -> tuple[object, ...]:
    """What makes two configurations the same upstream: everything its answers may depend on."""
    return (config.name, config.url, config.kind, config.key, tuple(sorted(config.headers.items())))


def _made(config: UpstreamConfig, gateway: GatewayConfig) -> Upstream:
    return Upstream(config, CircuitBreaker(gateway.breaker_failures, gateway.breaker_pause_s))
