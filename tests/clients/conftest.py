"""The 0.5B coder on a real server, shared by the suites of the official packages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgewise.config import Config, EngineOptions, ModelOptions
from edgewise.pipeline import Pipeline, load_pipeline
from tests.clients.serving import Served, serving
from tests.support.models import CODER_05B, model_path


def coder_pipeline(max_model_len: int, **defaults: float) -> Pipeline:
    """`defaults` of sampling stand in for the model's own, as of a generation_config.json. The caller closes it."""
    engine = EngineOptions(max_model_len=max_model_len, max_num_seqs=4)
    pipeline = load_pipeline(Config(model=ModelOptions(model=str(model_path(CODER_05B))), engine=engine))
    pipeline.generation_config.update(defaults)
    return pipeline


@pytest.fixture(scope="package")
def coder_served() -> Iterator[Served]:
    pipeline = coder_pipeline(4096)
    with serving(pipeline, api_keys=("sk-test",)) as served:
        yield served
    pipeline.close()
