"""Models as the store knows them: what a name asks for, the folder it becomes, and whether that folder is complete.

Kept apart from `pull` so that looking at the store loads nothing of HTTP.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import dataclass
from pathlib import Path

from edgewise.checkpoints import catalog
from edgewise.checkpoints.sources import Source, WheelSource, parse_source
from edgewise.core.errors import ModelNotFoundError

log = logging.getLogger(__name__)

RECORD = "model.json"
PARTIAL = ".partial"
LOCKS = ".locks"
MAX_ENTRY_LEN = 150


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model to have: the store entry it becomes, and where it can come from."""

    name: str  # what to type to get it
    sources: tuple[Source, ...]
    file: str | None = None
    bytes: int | None = None
    sha256: str | None = None

    @property
    def entry(self) -> str:
        """The folder's name in the store."""
        plain = re.sub(r"[^A-Za-z0-9._=-]+", "--", self.name).strip("-.")
        if len(plain) <= MAX_ENTRY_LEN:
            return plain
        return f"{plain[:MAX_ENTRY_LEN]}-{hashlib.sha256(self.name.encode()).hexdigest()[:16]}"


def wanted_model(model: str) -> Wanted | None:
    """What a name asks for: a catalog model, a hub id or a wheel source; None for anything else."""
    known = catalog.find(model)
    if known:
        return Wanted(known.name, known.sources, known.file, known.bytes, known.sha256)
    source = parse_source(model)
    if isinstance(source, WheelSource):
        return Wanted(str(source).partition("#")[0], (source,), sha256=source.sha256)
    return Wanted(str(source), (source,)) if source else None


def unknown_model(model: str) -> ModelNotFoundError:
    """The error for a name that is no catalog model, source or path."""
    close = catalog.similar(model)
    hint = (
        f"did you mean {' or '.join(close)}?" if close else "`edgewise list` shows the models known by name"
    )
    return ModelNotFoundError(f"{model!r} is not a known model, a hub id or an existing path", hint=hint)


def stored_file(folder: Path) -> Path | None:
    """The first file of an entry of the store; None when it is not there, or was damaged since (by size)."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
        for file in record["files"]:
            if (folder / file["name"]).stat().st_size != file["bytes"]:
                log.warning("%s: %s has another size than when it was pulled", folder, file["name"])
                return None
        return folder / str(record["files"][0]["name"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
