"""Profiles on disk: what the doctor found of an upstream at a version, one JSON file each."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
from pathlib import Path

import orjson

from edgewise.gateway.profile import Profile

logger = logging.getLogger("edgewise.gateway")

_ODD = re.compile(r"[^A-Za-z0-9._+-]+")


class FileProfiles:
    """A folder of profiles. A file that cannot be read counts as absent, and is complained of."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, name: str, version: str, /) -> Profile | None:
        path = self.path_of(name, version)
        try:
            return Profile.from_json(orjson.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("%s cannot be read as a profile and is left out: %s", path, error)
            return None

    def save(self, name: str, profile: Profile) -> Path:
        """Write a profile, whole or not at all."""
        path = self.path_of(name, profile.version)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".profile-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(orjson.dumps(profile.to_json(), option=orjson.OPT_INDENT_2))
            Path(temporary).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise
        return path

    def path_of(self, name: str, version: str) -> Path:
        return self._folder / f"{_ODD.sub('_', name)}@{_ODD.sub('_', version) or 'any'}.json"
