"""The control socket: the commands' way to the supervisor. A Unix socket for the owner alone; one JSON object a line, both ways.

{"do": "load" | "unload", "name": ...}, {"do": "ps" | "apply" | "leave"} -> any number of {"event": ...}, then {"done": true, ...} or {"error": ...,
"hint": ..., "log": [...]}. A client that leaves does not stop what it asked for. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from edgewise.core.errors import ConfigError, EdgewiseError
from edgewise.gateway.supervision.errors import EngineStartError
from edgewise.gateway.supervision.supervisor import Supervisor

logger = logging.getLogger("edgewise.gateway")

SOCKET = "gateway.sock"
LOCK = "gateway.lock"
_LINE_BYTES = 64 << 10

Say = Callable[[dict[str, Any]], None]


@contextlib.contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """The socket's address. A path may be longer than the 107 bytes an address has room for; one through its folder's descriptor is short."""
    if len(os.fsencode(path)) < 100:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class DataFolderLock:
    """Says that this gateway, and no other, looks after the engines of a data folder; released with the process, however it ends."""

    def __init__(self, data_dir: Path) -> None:
        """Raises ConfigError where another gateway has it."""
        data_dir.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(data_dir / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._handle)
            raise ConfigError(f"another gateway looks after the engines of {data_dir}") from None

    def release(self) -> None:
        os.close(self._handle)


class Control:
    """Listens from `start` to `stop`. `default` names the upstream that answers unknown names, if there is one."""

    def __init__(self, data_dir: Path, supervisor: Supervisor, default: Callable[[], str | None]) -> None:
        self._path = data_dir / SOCKET
        self._supervisor = supervisor
        self._default = default
        self._server: asyncio.Server | None = None
        self._work: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """What an earlier gateway left is replaced; whoever holds the lock may do that."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            with socket_address(self._path) as address:
                listener.bind(address)
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_LINE_BYTES)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                await self._answer(line, writer)
        writer.close()

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        """What was asked goes on when its client leaves, so it is a task of ours."""
        lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        task = asyncio.get_running_loop().create_task(self._do(line, lines.put_nowait))
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        last = False
        while not last:
            said = await lines.get()
            last = "done" in said or "error" in said
            writer.write(orjson.dumps(said) + b"\n")
            await writer.drain()

    async def _do(self, line: bytes, say: Say) -> None:
        try:
            say({"done": True, **await self._done(_request_of(line), say)})
        except EngineStartError as error:
            say({"error": error.message, "hint": error.hint, "log": list(error.lines)})
        except EdgewiseError as error:
            say({"error": error.message, "hint": error.hint})
        except asyncio.CancelledError:
            say({"error": "the gateway is stopping"})
            raise
        except Exception as error:
            logger.exception("a command failed")
            say({"error": f"the gateway failed: {error}"})

    async def _done(self, request: dict[str, Any], say: Say) -> dict[str, Any]:
        """Do it; what the last line says beside that it is done. Raises EdgewiseError."""
        name = str(request.get("name") or "")
        match request.get("do"):
            case "load":
                await self._supervisor.load(name, say)
            case "unload":
                await self._supervisor.unload(name, say)
            case "ps":
                engines = await self._supervisor.ps()
                return {
                    "engines": engines,
                    "default": self._default(),
                    "free_bytes": self._supervisor.free_bytes(),
                    "keep_free_bytes": self._supervisor.keep_free_bytes,
                    "pid": os.getpid(),
                }
            case "apply":
                await self._supervisor.apply(say)
            case "leave":
                self._supervisor.leave()
            case other:
                raise ConfigError(f"the gateway knows no command {other!r}")
        return {}


def _request_of(line: bytes) -> dict[str, Any]:
    try:
        request = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"that is no JSON: {error}") from None
    if not isinstance(request, dict):
        raise ConfigError("a command is an object")
    return request
