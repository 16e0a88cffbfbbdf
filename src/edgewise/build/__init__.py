"""From a checkpoint to an engine directory the engine maps, and the cache of those."""

from edgewise.build.build import build_engine_dir
from edgewise.build.cache import engine_dir_for, open_engine_dir
from edgewise.build.engine_dir import EngineDir, PackedTensor, is_engine_dir, verify_weights
from edgewise.build.inspect import Inspection, inspect_model

__all__ = [
    "EngineDir",
    "Inspection",
    "PackedTensor",
    "build_engine_dir",
    "engine_dir_for",
    "inspect_model",
    "is_engine_dir",
    "open_engine_dir",
    "verify_weights",
]
