"""Continues sequences of tokens: scheduling, KV blocks and their reuse, sampling, and the thread that runs the steps."""

from edgewise.engine.config import EngineConfig
from edgewise.engine.engine import Engine
from edgewise.engine.records import EngineListener, RequestRecord, StepRecord

__all__ = ["Engine", "EngineConfig", "EngineListener", "RequestRecord", "StepRecord"]
