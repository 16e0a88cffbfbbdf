"""A real server over a pipeline, on loopback, that records what it is asked and when its prompts were ready."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from edgewise.pipeline import Pipeline, Prepared
from edgewise.server import ServerOptions
from edgewise.server.run import make_server
from edgewise.serving.listening import bind, url_of
from tests.clients.recorder import Exchange, Recorder


@dataclass
class Served:
    """A running server. `prepared_s`: when each request, by its id, had been tokenised."""

    url: str
    recorder: Recorder
    pipeline: Pipeline
    prepared_s: dict[str, float] = field(default_factory=dict)

    @property
    def exchanges(self) -> list[Exchange]:
        return self.recorder.exchanges


@contextmanager
def serving(pipeline: Pipeline, **options: Any) -> Iterator[Served]:
    """Serve until the block ends. The pipeline stays the caller's."""
    chosen = ServerOptions(port=0, **options)
    listener = bind(chosen.host, chosen.port)
    ready = threading.Event()
    prepared_s = _watch_preparing(pipeline)
    server = make_server(pipeline, chosen, listener, lambda line: ready.set())
    recorder = Recorder(server.config.app)  # type: ignore[arg-type]
    server.config.app = recorder  # type: ignore[assignment]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield Served(url_of(listener), recorder, pipeline, prepared_s)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive(), "the server did not stop"


def _watch_preparing(pipeline: Pipeline) -> dict[str, float]:
    """From now on the pipeline notes when it has finished preparing a request."""
    times: dict[str, float] = {}
    prepare = pipeline.prepare_chat

    @functools.wraps(prepare)
    def timed(*args: Any, request_id: str, **fields: Any) -> Prepared:
        prepared = prepare(*args, request_id=request_id, **fields)
        times[request_id] = time.monotonic()
        return prepared

    pipeline.prepare_chat = timed
    return times
