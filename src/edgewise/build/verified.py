"""Weights are read against their checksums once for each file, not at every start: a gigabyte takes a second.

`verified.json` beside them says which file that was: a copy, or one that was written to, is another file and is read again. What it
cannot see is a disk that loses bits by itself; `edgewise inspect --verify` reads everything whatever it says.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from edgewise.build.engine_dir import WEIGHTS, EngineDir, verify_weights
from edgewise.checkpoints.files import replace_file
from edgewise.checkpoints.progress import ProgressCallback, silent

log = logging.getLogger(__name__)

STAMP = "verified.json"


def verify_once(engine_dir: EngineDir, progress: ProgressCallback = silent) -> EngineDir:
    """The same directory, its weights read whole if nobody has yet. Raises EngineDirError naming the first damaged tensor."""
    if not _is_known(engine_dir.path):
        verify_weights(engine_dir, progress)
        remember_verified(engine_dir.path)
    return engine_dir


def remember_verified(path: Path) -> None:
    """Note that the weights of an engine directory, as they lie there now, are sound."""
    try:
        replace_file(path / STAMP, json.dumps(_identity(path)).encode())
    except OSError as error:
        log.info("%s: cannot note that its weights are sound (%s); they are read at each start", path, error)


def _identity(path: Path) -> dict[str, int]:
    """Writing to a file changes its times, copying it its number too."""
    stat = (path / WEIGHTS).stat()
    return {
        "inode": stat.st_ino,
        "bytes": stat.st_size,
        "changed_ns": stat.st_ctime_ns,
        "modified_ns": stat.st_mtime_ns,
    }


def _is_known(path: Path) -> bool:
    try:
        return bool(json.loads((path / STAMP).read_bytes()) == _identity(path))
    except (OSError, ValueError):
        return False
