"""`edgewise gateway --serve MODEL`: a model served by the gateway's own process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgewise.cli.common import progress_bar

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from edgewise.gateway.config import UpstreamConfig


@contextlib.contextmanager
def local_engine(model: str | None, max_body_bytes: int) -> Iterator[tuple[UpstreamConfig, ASGIApp] | None]:
    """The upstream that a model is, and what answers for it; None without a model. Raises what loading raises."""
    if model is None:
        yield None
        return
    from edgewise.config import Config, ModelOptions
    from edgewise.gateway.config import UpstreamConfig
    from edgewise.gateway.in_process import ADDRESS
    from edgewise.gateway.profile import Kind
    from edgewise.pipeline import load_pipeline
    from edgewise.server import ServerOptions, create_app

    with progress_bar() as report:
        pipeline = load_pipeline(Config(model=ModelOptions(model=model)), progress=report)
    with contextlib.closing(pipeline):
        options = ServerOptions(max_body_bytes=max_body_bytes, page=False, model_path=model)
        yield UpstreamConfig(pipeline.model_name, ADDRESS, Kind.EDGEWISE), create_app(pipeline, options)
