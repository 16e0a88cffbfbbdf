"""Running the server: bind first, load, listen, say so in one line, drain on SIGTERM, close."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import math
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import uvicorn

from edgewise import config
from edgewise.config import Config
from edgewise.core.errors import ConfigError
from edgewise.pipeline import Pipeline, load_pipeline
from edgewise.server.app import create_app
from edgewise.server.http_protocol import BoundedHeadProtocol
from edgewise.server.options import ServerOptions

logger = logging.getLogger("edgewise.server")

Announce = Callable[[str], None]

_IDLE_CONNECTION_S = 75  # longer than common clients and proxies keep a connection, so that they close first
_BACKLOG = 2048


Loading = Callable[[], AbstractContextManager[Any]]
"""Makes what draws the progress of loading: a context that gives `load_pipeline` its callback, or None."""


def serve(
    source: Config | Pipeline,
    options: config.ServerOptions | None = None,
    *,
    announce: Announce | None = None,
    loading: Loading = contextlib.nullcontext,
) -> None:
    """Serve until SIGINT or SIGTERM: drain what runs, then return. Belongs on the main thread, which hears signals.

    A Config is loaded first and its pipeline closed afterwards; a Pipeline stays its owner's. `options` replace those of the
    Config. `announce` gets the one line that says the server is ready; None prints it. `loading` makes what draws the progress. Raises ConfigError when the address
    cannot be had (before anything is loaded), and whatever loading raises.
    """
    chosen = _options(source, options)
    listener = bind(chosen)
    with contextlib.ExitStack() as owned:
        owned.callback(listener.close)
        pipeline = source
        if isinstance(pipeline, Config):
            with loading() as report:
                pipeline = load_pipeline(pipeline, progress=report)
            owned.callback(pipeline.close)
        server = make_server(pipeline, chosen, listener, announce or _print_line)
        gc.collect()
        gc.freeze()  # what is loaded stays: later collections need not walk it
        server.run()


def _options(source: Config | Pipeline, options: config.ServerOptions | None) -> ServerOptions:
    if not isinstance(source, Config):
        return ServerOptions.of(options or ServerOptions())
    model = source.model
    return ServerOptions.of(
        options or source.server,
        served_model_name=model.served_model_name,
        model_path=str(model.engine_dir or model.model or ""),
    )


def make_server(
    pipeline: Pipeline, options: ServerOptions, listener: socket.socket, announce: Announce
) -> Server:
    """A server that is ready to run, on whatever thread. It does not close the pipeline."""
    uvicorn_config = uvicorn.Config(
        create_app(pipeline, options),
        http=BoundedHeadProtocol,
        loop="auto",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=options.access_log,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_IDLE_CONNECTION_S,
        timeout_graceful_shutdown=math.ceil(options.drain_timeout_s),
    )
    if options.log_level != "debug":
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    name = options.served_model_name or pipeline.model_name
    line = f"Edgewise serves {name} at {url_of(listener)} (window {pipeline.max_model_len:,} tokens)"

    def on_ready() -> None:
        announce(line)
        asyncio.get_running_loop().run_in_executor(None, pipeline.chat_style.compiler.warm_up)

    return Server(uvicorn_config, listener, on_ready)


def _print_line(line: str) -> None:
    print(line, flush=True)


class Server(uvicorn.Server):
    """uvicorn on a socket bound beforehand. A signal drains and then returns, so that the caller can close what it owns."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._listener = listener
        self._on_ready = on_ready

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run(sockets or [self._listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

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


def bind(options: ServerOptions) -> socket.socket:
    """A bound TCP socket. Raises ConfigError naming the address when it cannot be had."""
    try:
        infos = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
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
        raise ConfigError(
            f"cannot listen on {options.host}:{options.port}: {error.strerror or error}", hint=hint
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}"
