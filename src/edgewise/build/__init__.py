"""From a checkpoint to an engine directory the engine maps, and the cache of those."""

from edgewise.build.build import build_engine_dir
from edgewise.build.cache import engine_dir_for, open_engine_dir
from edgewise.build.engine_dir import EngineDir, PackedTensor, verify_weights

__all__ = [
    "EngineDir",
    "PackedTensor",
    "build_engine_dir",
    "engine_dir_for",
    "open_engine_dir",
    "verify_weights",
]
