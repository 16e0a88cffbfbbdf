"""A pipeline over the scripted model, its application in process, and a real server on loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from edgewise.pipeline import Pipeline
from edgewise.server import ServerOptions, create_app
from edgewise.server.run import make_server
from edgewise.serving.listening import bind, url_of
from tests.support.pipelines import make_pipeline

ANSWERS = {
    "Say hi<|im_end|>\n<|im_start|>assistant\n": "Hello there!<|im_end|>",
    "The list is:": " one, two<|im_end|>",
    "Once upon": " a time.</s>",
    "One": " two three</s>",
}

MakeClient = Callable[..., httpx.AsyncClient]


@pytest.fixture
def make() -> Iterator[Callable[..., Pipeline]]:
    """Pipelines that are closed after the test."""
    made: list[Pipeline] = []

    def new(answers: dict[str, str] | None = None, **options: Any) -> Pipeline:
        made.append(make_pipeline(ANSWERS if answers is None else answers, **options))
        return made[-1]

    yield new
    for pipeline in made:
        pipeline.close()


@pytest.fixture
def pipeline(make: Callable[..., Pipeline]) -> Pipeline:
    return make()


@pytest.fixture
async def client_of() -> AsyncIterator[MakeClient]:
    """Clients of applications in process, closed after the test."""
    clients: list[httpx.AsyncClient] = []

    def new(pipeline: Pipeline, **options: Any) -> httpx.AsyncClient:
        app = create_app(pipeline, ServerOptions(**options))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        clients.append(httpx.AsyncClient(transport=transport, base_url="http://test"))
        return clients[-1]

    yield new
    for client in clients:
        await client.aclose()


@pytest.fixture
async def client(pipeline: Pipeline, client_of: MakeClient) -> httpx.AsyncClient:
    return client_of(pipeline)


@contextmanager
def running(pipeline: Pipeline, **options: Any) -> Iterator[str]:
    """A real server on a free loopback port, in a thread; its address."""
    chosen = ServerOptions(port=0, **options)
    listener = bind(chosen.host, chosen.port)
    ready = threading.Event()
    server = make_server(pipeline, chosen, listener, lambda line: ready.set())
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive(), "the server did not stop"


def eventually(condition: Callable[[], bool], within_s: float = 5.0) -> bool:
    """Whether a condition comes true in time."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
