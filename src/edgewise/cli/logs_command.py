"""`edgewise logs [NAME]`: what engines wrote. Reads the files; no gateway has to run."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from edgewise.cli.common import store_settings
from edgewise.core.errors import ConfigError

_PAUSE_S = 0.2
_BLOCK_BYTES = 64 << 10


def command(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="one engine; all of them if absent", show_default=False)] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on with what is written from now on")] = False,
    num_lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="begin with the last so many lines")] = 50,
) -> None:  # fmt: skip
    logs_dir = store_settings().data_dir / "logs"
    files = _files(logs_dir, name)
    if not files:
        what = f"{name!r} has no log" if name else "no engine has a log"
        raise ConfigError(f"{what} in {logs_dir}", hint="it is made when the engine is loaded")
    heading = ""
    read = {}
    for path in files:
        data, read[path] = _last_lines(path, num_lines)
        heading = _print(path, data, heading, several=len(files) > 1)
    if follow:
        _follow(logs_dir, name, heading, read)


def _files(logs_dir: Path, name: str | None) -> list[Path]:
    if name is None:
        return sorted(logs_dir.glob("*.log"))
    path = logs_dir / f"{name}.log"
    return [path] if path.parent == logs_dir and path.is_file() else []


def _last_lines(path: Path, num_lines: int) -> tuple[bytes, int]:
    """Read from the end, block by block, as far as need be; and where that end was."""
    with path.open("rb") as file:
        at = end = file.seek(0, 2)
        data = b""
        while at > 0 and data.count(b"\n") <= num_lines:
            step = min(_BLOCK_BYTES, at)
            at -= step
            file.seek(at)
            data = file.read(step) + data
    return b"".join(data.splitlines(keepends=True)[-num_lines:]) if num_lines else b"", end


def _print(path: Path, data: bytes, heading: str, *, several: bool) -> str:
    """Print bytes of a log, below its engine's name if the last ones were another's. The heading that is in force then."""
    if several and path.stem != heading and data:
        data = f"==> {path.stem} <==\n".encode() + data
        heading = path.stem
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return heading


def _follow(logs_dir: Path, name: str | None, heading: str, read: dict[Path, int]) -> None:
    """Until it is interrupted. `read`: how far each log was. One that became shorter was emptied, and is read from its start."""
    while True:
        time.sleep(_PAUSE_S)
        for path in _files(logs_dir, name):
            with path.open("rb") as file:
                data = _news(file, read.get(path, 0))
                read[path] = file.tell()
            heading = _print(path, data, heading, several=name is None)


def _news(file: BinaryIO, since: int) -> bytes:
    size = file.seek(0, 2)
    file.seek(since if since <= size else 0)
    return file.read()
