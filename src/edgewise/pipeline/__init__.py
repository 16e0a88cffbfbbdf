"""The way of a request inside the process: what a client asked becomes tokens, runs, and comes back as chat events."""

from edgewise.pipeline.defaults import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    PYTHON,
    RESPONSES,
    SamplingDefaults,
    sampling_params,
)
from edgewise.pipeline.load import load_pipeline
from edgewise.pipeline.pipeline import Pipeline
from edgewise.pipeline.prepare import Prepared
from edgewise.pipeline.stream import Stream, StreamGroup

__all__ = [
    "CHAT",
    "COMPLETIONS",
    "MESSAGES",
    "PYTHON",
    "RESPONSES",
    "Pipeline",
    "Prepared",
    "SamplingDefaults",
    "Stream",
    "StreamGroup",
    "load_pipeline",
    "sampling_params",
]
