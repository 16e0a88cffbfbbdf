"""A process of an engine, our child or one that an earlier gateway started: begun in a session of its own, watched by pidfd, ended as a whole.

A child is held at its start until its number was written down, so that a gateway killed at any moment leaves no process that the next one does
not know: a shell waits for one line on its input, and ends if that is closed instead. Linux only. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from edgewise.core.engines import Launch, Ran
from edgewise.gateway.supervision.errors import EngineStartError
from edgewise.gateway.supervision.logs import EngineLog

_HELD = 'read -r go || exit 125; exec "$@" </dev/null'
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One line of /proc/PID/stat."""

    pid: int
    dead: bool  # it ended, and its parent has not asked how
    session: int
    start_ticks: int
    rss_bytes: int


def read_process(pid: int) -> ProcessFacts | None:
    """None where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return ProcessFacts(
        pid, fields[0] in "ZX", int(fields[3]), int(fields[19]), int(fields[21]) * _PAGE_BYTES
    )


class EngineProcess:
    """One running process, leader of its session. `ended` may be awaited by any number of tasks."""

    def __init__(self, pid: int, start_ticks: int, child: subprocess.Popen[bytes] | None) -> None:
        """Raises ProcessLookupError where it is gone already."""
        self.pid = pid
        self.start_ticks = start_ticks
        self._child = child
        self._over = asyncio.Event()
        self._how = ""
        self._pidfd = os.pidfd_open(pid)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pidfd, self._end)

    @property
    def running(self) -> bool:
        return not self._over.is_set()

    async def ended(self) -> str:
        """Wait for its end. How it ended, in words."""
        await self._over.wait()
        return self._how

    def release(self) -> None:
        """Let a held child begin."""
        assert self._child is not None and self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(b"go\n")
            self._child.stdin.close()

    async def stop(self, grace_s: float) -> None:
        """Ask the whole group to end; what is still there after `grace_s` is killed, and waited for."""
        if self.running:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._over.wait()
        if self.running:
            self._signal(signal.SIGKILL)
            await self._over.wait()

    def let_go(self) -> None:
        """Watch it no longer; it runs on."""
        if self.running:
            self._close()

    def rss_bytes(self) -> int:
        """Resident memory of its session, pages that several processes share counted in each."""
        return sum(one.rss_bytes for one in _session(self.pid))

    def uptime_s(self) -> float:
        now_s = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
        return max(0.0, now_s - self.start_ticks / _TICKS_PER_S)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _end(self) -> None:
        """The leader ended: what is left of its session must not stay. Its number is still taken here, since nobody has asked how it ended
        yet, or one of its group is left; an adopted one without any is gone, and the signal meets nobody.
        """
        self._signal(signal.SIGKILL)
        for one in _session(self.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one.pid, signal.SIGKILL)
        self._how = "it ended" if self._child is None else _in_words(self._child.wait())
        self._close()
        self._over.set()

    def _close(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)


def start_held(launch: Launch, environment: Mapping[str, str], log: EngineLog) -> EngineProcess:
    """A process that begins once it is released. Its output goes to the log. Raises EngineStartError where its program is not there."""
    environ = {**environment, **launch.env}
    program = shutil.which(launch.argv[0], path=environ.get("PATH"))
    if program is None:
        raise EngineStartError(
            f"{launch.name}: there is no program {launch.argv[0]!r}", hint="--program names another"
        )
    with log.opened(f"starting {shlex.join(launch.argv)}") as output:
        child = subprocess.Popen(
            ["/bin/sh", "-c", _HELD, launch.name, program, *launch.argv[1:]],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environ,
            start_new_session=True,
        )
    facts = read_process(child.pid)
    assert facts is not None, "a child is there until it is waited for"
    return EngineProcess(child.pid, facts.start_ticks, child)


def check_port(launch: Launch) -> None:
    """Another program there would be taken for the engine. Raises EngineStartError."""
    parts = urlsplit(launch.url)
    port = parts.port or 80
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((parts.hostname or "127.0.0.1", port))
        except OSError as error:
            raise EngineStartError(
                f"{launch.name} cannot listen on port {port}: {error.strerror}", hint="--port picks another"
            ) from error


def adopt(ran: Ran) -> EngineProcess | None:
    """The process that was noted, if it still runs. Another one with the same number began at another time, or leads no session."""
    facts = read_process(ran.pid)
    same = facts is not None and facts.start_ticks == ran.start_ticks and facts.session == ran.pid
    if not same or facts is None or facts.dead:
        return None
    try:
        return EngineProcess(ran.pid, ran.start_ticks, None)
    except ProcessLookupError:
        return None


def _session(pid: int) -> Iterator[ProcessFacts]:
    """The living processes of a session."""
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a thousand Path objects for a handful
        if (
            entry.isdigit()
            and (facts := read_process(int(entry))) is not None
            and facts.session == pid
            and not facts.dead
        ):
            yield facts


def _in_words(status: int) -> str:
    if status >= 0:
        return f"it ended with status {status}"
    try:
        return f"it was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"it was ended by signal {-status}"
