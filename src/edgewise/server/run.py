"""Running the server: bind first, load, listen, say so in one line, drain on SIGTERM, close."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from edgewise import config
from edgewise.config import Config
from edgewise.pipeline import Pipeline, load_pipeline
from edgewise.server.app import create_app
from edgewise.server.options import ServerOptions
from edgewise.serving.listening import Announce, Server, bind, print_line, url_of

logger = logging.getLogger("edgewise.server")

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
    listener = bind(chosen.host, chosen.port)
    with contextlib.ExitStack() as owned:
        owned.callback(listener.close)
        pipeline = source
        if isinstance(pipeline, Config):
            with loading() as report:
                pipeline = load_pipeline(pipeline, progress=report)
            owned.callback(pipeline.close)
        server = make_server(pipeline, chosen, listener, announce or print_line)
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
    name = options.served_model_name or pipeline.model_name
    line = f"Edgewise serves {name} at {url_of(listener)} (window {pipeline.max_model_len:,} tokens)"

    def on_ready() -> None:
        announce(line)
        asyncio.get_running_loop().run_in_executor(None, pipeline.chat_style.compiler.warm_up)

    return Server(
        create_app(pipeline, options),
        listener,
        on_ready,
        drain_timeout_s=options.drain_timeout_s,
        access_log=options.access_log,
        log_level=options.log_level,
    )
