"""Listening: bind first, run uvicorn on that socket, drain on SIGINT and SIGTERM, return."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from edgewise.core.errors import ConfigError
from edgewise.serving.http_protocol import BoundedHeadProtocol

logger = logging.getLogger("edgewise.serving")

Announce = Callable[[str], None]

_IDLE_CONNECTION_S = 75  # longer than common clients and proxies keep a connection, so that they close first
_BACKLOG = 2048


def print_line(line: str) -> None:
    print(line, flush=True)


class Server(uvicorn.Server):
    """uvicorn on a socket bound beforehand. A signal drains and then returns, so that the caller can close what it owns.

    `on_ready` runs on the event loop once requests are answered.
    """

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        on_ready: Callable[[], None],
        *,
        drain_timeout_s: float,
        access_log: bool = False,
        log_level: str = "info",
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=BoundedHeadProtocol,
                loop="auto",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=access_log,
                server_header=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_IDLE_CONNECTION_S,
                timeout_graceful_shutdown=math.ceil(drain_timeout_s),
            )
        )
        if log_level != "debug":
            logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._listener = listener
        self._on_ready = on_ready

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run(sockets or [self._listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:  # the application shuts down all the same, and has nothing that waits
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains; one more of either kind ends it at once."""
        if self.should_exit:
            self.force_exit = True
        elif self.server_state.tasks:
            logger.info(
                "shutting down when %d requests have ended; once more ends them", len(self.server_state.tasks)
            )
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Like uvicorn's, but the signal is not raised again afterwards: that would end the process uncleanly."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = (signal.SIGINT, signal.SIGTERM)
        previous = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket. Raises ConfigError naming the address when it cannot be had."""
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = infos[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        hint = None
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            hint = "another program may use the port; --port picks one, 0 any free one"
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}", hint=hint) from error
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}"
