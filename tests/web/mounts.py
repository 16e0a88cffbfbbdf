"""The two servers that have the page: `edgewise serve` over a scripted model, and the gateway over a scripted engine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from edgewise.gateway.keys import StaticKeys
from edgewise.web import SearchSettings, web_routes
from tests.server.conftest import running
from tests.support.gateway_parts import gateway, upstream
from tests.support.pipelines import make_pipeline
from tests.support.scripted_upstream import chat_server, scripted


@contextlib.contextmanager
def served(**options: Any) -> Iterator[str]:
    pipeline = make_pipeline({"assistant\n": "Hello.<|im_end|>"}, max_model_len=8192, num_blocks=2048)
    with running(pipeline, **options) as url:
        yield url
    pipeline.close()


@contextlib.contextmanager
def of_gateway(**options: Any) -> Iterator[str]:
    search = SearchSettings(options.pop("search_url", None))
    keys = options.pop("api_keys", ())
    more = {"keys": StaticKeys(keys)} if keys else {}
    page = options.pop("page", True)
    with scripted(chat_server("m", "Hello.")) as behind:
        routes = web_routes(lambda request: "A gateway.\n", search, page=page)
        with gateway(upstream(behind.url), routes=routes, **more, **options) as url:
            yield url
