"""Running the gateway: bind first, look at the upstreams, listen, read the configuration again on SIGHUP, drain on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from edgewise.core.errors import ConfigError
from edgewise.gateway.app import create_gateway
from edgewise.gateway.config import GatewayConfig
from edgewise.gateway.fleet import Fleet
from edgewise.gateway.in_process import InProcessTransport
from edgewise.gateway.keys import KeyStore, OpenDoor
from edgewise.gateway.learning import ProfileStore
from edgewise.gateway.parts import ForwardOptions, GatewayParts, Transport
from edgewise.gateway.transport import HttpTransport
from edgewise.serving.auth import is_loopback
from edgewise.serving.listening import Announce, Server, bind, print_line, url_of

if TYPE_CHECKING:  # it is for Linux alone
    from edgewise.gateway.supervision.desk import EngineDesk

logger = logging.getLogger("edgewise.gateway")

Load = Callable[[], GatewayConfig]
"""Reads the configuration; again on each reload. Raises ConfigError."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the gateway listens and how it stops."""

    host: str = "127.0.0.1"
    port: int = 8080
    drain_timeout_s: float = 30.0
    log_level: str = "info"


class Gateway:
    """A gateway that is ready to run. `fleet` is its upstreams: those of the configuration, then the engines of the desk that are loaded.

    `reload` may be called on the event loop at any time.
    """

    def __init__(
        self,
        load: Load,
        options: ForwardOptions,
        *,
        keys: KeyStore,
        profiles: ProfileStore | None = None,
        routes: Sequence[BaseRoute] = (),
        desk: EngineDesk | None = None,
        local: ASGIApp | None = None,
    ) -> None:
        """`local` answers for the upstream at `in_process.ADDRESS`. Raises ConfigError."""
        self._load = load
        self._desk = desk
        self._config = load()
        outside = HttpTransport()
        transport: Transport = outside if local is None else InProcessTransport(local, outside)
        self.fleet = Fleet(self._config, transport, profiles)
        minding = [] if desk is None else [lambda: desk.open(transport, self._engines_changed, self._default)]
        self.app = create_gateway(
            GatewayParts(
                router=self.fleet.router,
                transport=transport,
                keys=keys,
                options=options,
                routes=routes,
                startup=(self._hear_reloads, self.fleet.start, *minding),
                shutdown=(*([] if desk is None else [desk.close]), self.fleet.stop, outside.aclose),
            )
        )

    async def _hear_reloads(self) -> None:
        if threading.current_thread() is threading.main_thread():  # elsewhere no signal is heard
            with contextlib.suppress(NotImplementedError, AttributeError):  # Windows has none
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)

    def reload(self) -> None:
        """Read the configuration again. One that is wrong changes nothing, and is complained of in the log."""
        try:
            config = self._load()
        except ConfigError as error:
            hint = f" ({error.hint})" if error.hint else ""
            logger.error("the configuration stays as it was: %s%s", error.message, hint)
            return
        self._config = config
        self.fleet.reload(self._with_engines())
        logger.info("configuration read again: %s", ", ".join(one.name for one in config.upstreams))

    async def _engines_changed(self, name: str | None) -> None:
        self.fleet.reload(self._with_engines())
        if name is not None:
            await self.fleet.known(name)

    def _with_engines(self) -> GatewayConfig:
        """The configuration's upstreams, then the loaded engines of other names."""
        config = self._config
        if self._desk is None:
            return config
        names = frozenset(one.name for one in config.upstreams)
        engines = self._desk.upstreams(names)
        return config.replace(upstreams=(*config.upstreams, *engines))

    def _default(self) -> str | None:
        """Who answers unknown names."""
        first = next((one.name for one in self.fleet.upstreams), None)
        return self._config.default or first


def serve(
    load: Load,
    options: ForwardOptions | None = None,
    *,
    listening: Listening | None = None,
    keys: KeyStore | None = None,
    profiles: ProfileStore | None = None,
    routes: Sequence[BaseRoute] = (),
    announce: Announce | None = None,
    desk: EngineDesk | None = None,
    local: ASGIApp | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. Belongs on the main thread. Raises ConfigError for a configuration or an address that cannot be used."""
    chosen = listening or Listening()
    doors = keys or OpenDoor()
    gateway = Gateway(
        load,
        options or ForwardOptions(),
        keys=doors,
        profiles=profiles,
        routes=routes,
        desk=desk,
        local=local,
    )
    listener = bind(chosen.host, chosen.port)
    with contextlib.closing(listener):
        if not doors.required and not is_loopback(chosen.host):
            logger.warning(
                "no API key is needed and other machines reach %s; `edgewise key create NAME` makes one",
                chosen.host,
            )
        make_server(gateway, chosen, listener, announce or print_line).run()


def make_server(
    gateway: Gateway, listening: Listening, listener: socket.socket, announce: Announce
) -> Server:
    """A server that is ready to run, on whatever thread."""

    def on_ready() -> None:
        names = ", ".join(one.name for one in gateway.fleet.upstreams)
        announce(f"Edgewise's gateway{f' to {names}' if names else ''} is at {url_of(listener)}")

    return Server(
        gateway.app,
        listener,
        on_ready,
        drain_timeout_s=listening.drain_timeout_s,
        log_level=listening.log_level,
    )
