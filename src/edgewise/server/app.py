"""The application: routes, middleware and shared state round one pipeline."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

import edgewise
from edgewise import config
from edgewise.config import BLOCK_SIZE
from edgewise.pipeline import Pipeline
from edgewise.server import embedding_routes, info_routes
from edgewise.server.admission import AdmissionGate
from edgewise.server.metrics import EngineMetrics, MetricsCollector
from edgewise.server.options import ServerOptions
from edgewise.server.response_routes import responses_router
from edgewise.server.routes import generation_router
from edgewise.server.state import ServerState
from edgewise.serving.auth import OPEN_PATHS, ApiKeyMiddleware, is_loopback
from edgewise.serving.errors import install_error_handlers
from edgewise.serving.paths import RootPathMiddleware
from edgewise.serving.strangers import StrangersMiddleware
from edgewise.web import SearchSettings, web_routes
from edgewise.web.page import PATHS as PAGE_PATHS

logger = logging.getLogger("edgewise.server")


def create_app(pipeline: Pipeline, options: config.ServerOptions | None = None) -> FastAPI:
    """An ASGI application that serves `pipeline`. The caller closes the pipeline, after the application has shut down."""
    options = ServerOptions.of(options or ServerOptions())
    state = ServerState(
        pipeline=pipeline,
        options=options,
        gate=AdmissionGate(options.request_queue_size),
        side_gate=AdmissionGate(options.request_queue_size),
        executor=ThreadPoolExecutor(options.parse_threads, thread_name_prefix="edgewise-prepare"),
    )
    app = FastAPI(
        title="Edgewise",
        version=edgewise.__version__,
        openapi_url=None,  # bodies are read by hand, so a generated schema would say nothing
        lifespan=_lifespan,
    )
    if options.enable_metrics:
        state.collector = _watch_engine(state)
    app.state.edgewise = state
    app.include_router(generation_router(options))
    app.include_router(responses_router(options))
    app.include_router(embedding_routes.router)
    search = SearchSettings(
        options.search_url, max_body_bytes=options.max_body_bytes, keep_alive_s=options.keep_alive_s
    )
    app.router.routes += web_routes(info_routes.greeting, search, page=options.page)
    app.include_router(info_routes.router)
    install_error_handlers(app)
    _add_middleware(app, options)
    return app


def _watch_engine(state: ServerState) -> MetricsCollector:
    """Listen to the engine and make its sums, and the server's own, readable."""
    pipeline = state.pipeline
    metrics = EngineMetrics(pipeline.max_model_len)
    pipeline.engine.add_listener(metrics)
    return MetricsCollector(
        metrics,
        state.model_name,
        stats=pipeline.engine.stats,
        num_refused=lambda: state.gate.num_refused,
        num_bare_calls=lambda: state.num_bare_calls,
        ignored=lambda: dict(state.ignored.counts),
        max_model_len=pipeline.max_model_len,
        block_size=pipeline.resolved.block_size if pipeline.resolved else BLOCK_SIZE,
    )


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    state: ServerState = app.state.edgewise
    state.executor.shutdown(wait=False, cancel_futures=True)


def _add_middleware(app: FastAPI, options: ServerOptions) -> None:
    """Outermost last: CORS headers belong on refusals too."""
    if options.api_keys:
        open_paths = OPEN_PATHS | PAGE_PATHS if options.page else OPEN_PATHS
        app.add_middleware(ApiKeyMiddleware, keys=options.api_keys, open_paths=open_paths)
    else:
        app.add_middleware(StrangersMiddleware, hosts=options.allowed_hosts, origins=options.allowed_origins)
        if not is_loopback(options.host):
            logger.warning(
                "serving on %s without an API key: anybody who reaches it can use it", options.host
            )
    if options.allowed_hosts:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(options.allowed_hosts))
    if options.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(options.allowed_origins),
            allow_methods=["GET", "POST", "HEAD", "DELETE"],
            allow_headers=["*"],
        )
    if options.root_path:
        app.add_middleware(RootPathMiddleware, root_path=options.root_path.rstrip("/"))
