"""Pipelines that are closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from edgewise.pipeline import Pipeline
from tests.support.pipelines import make_pipeline


@pytest.fixture
def pipelines() -> Iterator[Callable[..., Pipeline]]:
    made: list[Pipeline] = []

    def make(*args: Any, **kwargs: Any) -> Pipeline:
        made.append(make_pipeline(*args, **kwargs))
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.close()
