"""A stand-in for `systemctl --user` that runs a unit's program: enough of start, stop and restart to see what happens to what it started.

`python systemd_stand_in.py FOLDER ARGUMENT ...`: FOLDER holds the units, and the number of the process of each that runs. Of a unit's settings
it reads ExecStart and Environment; only the main process is ended, as with KillMode=process.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path


def main(folder: Path, words: list[str]) -> int:
    with (folder / "asked").open("a") as asked:
        print(*words, file=asked)
    verbs = [word for word in words if not word.startswith("--")]
    if not verbs or verbs[0] in ("daemon-reload", "enable"):
        return 0
    unit = folder / verbs[1]
    if verbs[0] == "is-active":
        return 0 if running(unit) else 3
    if verbs[0] == "kill":
        return 0
    stop(unit)
    if verbs[0] == "restart":
        start(unit)
    return 0


def running(unit: Path) -> int | None:
    """The main process."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(unit.with_suffix(".pid").read_text())
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return None if state == "Z" else pid
    return None


def stop(unit: Path) -> None:
    if (pid := running(unit)) is None:
        return
    os.kill(pid, signal.SIGTERM)
    while running(unit) == pid:
        time.sleep(0.02)


def start(unit: Path) -> None:
    lines = [line.partition("=") for line in unit.read_text().splitlines()]
    (written,) = [value for name, _, value in lines if name == "ExecStart"]
    command = [word.replace("$$", "$") for word in words(written)]
    given = [words(value)[0].partition("=") for name, _, value in lines if name == "Environment"]
    with (unit.parent / "gateway.log").open("a") as log:
        process = subprocess.Popen(
            command,
            env={name: value for name, _, value in given},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    unit.with_suffix(".pid").write_text(str(process.pid))


def words(text: str) -> list[str]:
    return [word.replace("%%", "%") for word in shlex.split(text)]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
