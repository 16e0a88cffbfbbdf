"""The parent's side of `sandbox.py`: starts the process, gives it work with a deadline, ends it when it overstays."""

from __future__ import annotations

import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgewise.chat.sandbox import LENGTH
from edgewise.core.errors import EdgewiseError, ModelError

PROGRAM = Path(__file__).with_name("sandbox.py")
MEMORY_BYTES = 1 << 30
PATIENCE = 6  # times the deadline, by the clock: other work may hold the processors
BASE_CHARS = 4 << 20
CHARS_PER_INPUT_CHAR = 8


class TemplateOverrunError(EdgewiseError):
    """The template did not end in time, or its process died (out of memory, most likely)."""


@dataclass(frozen=True, slots=True)
class Result:
    """One rendering: `text`, or why there is none."""

    text: str
    error: Literal["", "raised", "failed"] = ""
    message: str = ""


class TemplateProcess:
    """One template in one process, started on first use and after a failure. Any thread; renders one request at a time.

    `deadline_s` is the computing time of one request.
    """

    def __init__(self, source: str, *, deadline_s: float) -> None:
        self._source = source
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[[subprocess.Popen[bytes]], TemplateProcess] | None = None

    def render(self, contexts: Sequence[dict[str, Any]]) -> list[Result]:
        """Render the template once for each context.

        Raises ModelError when the template does not compile, TemplateOverrunError when the deadline passes or the process
        dies, TypeError when a context is not JSON.
        """
        body = json.dumps(contexts)
        limits = (
            f'"max_chars": {BASE_CHARS + CHARS_PER_INPUT_CHAR * len(body)}, "deadline_s": {self._deadline_s}'
        )
        request = f'{{{limits}, "contexts": {body}}}'.encode()
        with self._lock:
            process = self._running()
            answer = self._ask(process, request)
        return [
            Result(result.get("text", ""), result.get("error", ""), result.get("message", ""))
            for result in answer["results"]
        ]

    def close(self) -> None:
        """End the process. A later render starts another."""
        with self._lock:
            self._stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._stop()
        process = self._process = _start()
        self._finalizer = weakref.finalize(self, _end, process)
        opening = json.dumps(
            {"source": self._source, "memory_bytes": MEMORY_BYTES, "deadline_s": self._deadline_s}
        ).encode()
        answer = self._ask(process, opening)
        if "error" in answer:
            self._stop()
            raise ModelError(f"the chat template does not compile: {answer['message']}")
        return process

    def _ask(self, process: subprocess.Popen[bytes], body: bytes) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads(
                _exchange(process, body, time.monotonic() + PATIENCE * self._deadline_s)
            )
        except (TimeoutError, OSError, EOFError) as error:
            self._stop()
            if isinstance(error, TimeoutError) or process.returncode == -signal.SIGPROF:
                message = f"the chat template did not end within {self._deadline_s:g} s"
            else:
                message = "the chat template's process ended; it may need too much memory"
            raise TemplateOverrunError(message) from None
        return answer

    def _stop(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._process = self._finalizer = None


def _start() -> subprocess.Popen[bytes]:
    """The sandbox, isolated from the environment: it finds jinja2 where this process would, and nothing else."""
    places = {
        str(Path(spec.origin).parents[1])
        for spec in map(importlib.util.find_spec, ("jinja2", "markupsafe"))
        if spec is not None and spec.origin is not None
    }
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(PROGRAM), *sorted(places)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # an interrupt at the terminal is for the parent, which closes the pipe
        bufsize=0,
    )
    assert process.stdin is not None and process.stdout is not None
    os.set_blocking(process.stdin.fileno(), False)
    os.set_blocking(process.stdout.fileno(), False)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()  # keeps the cause of death of a process that has died already
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _exchange(process: subprocess.Popen[bytes], body: bytes, deadline: float) -> bytes:
    """Send one message and read the answer. Raises TimeoutError at `deadline` (time.monotonic()), EOFError, OSError."""
    assert process.stdin is not None and process.stdout is not None
    unsent = memoryview(LENGTH.pack(len(body)) + body)
    answer = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(answer) < LENGTH.size or len(answer) < LENGTH.size + LENGTH.unpack_from(answer)[0]:
            events = selector.select(max(0.0, deadline - time.monotonic()))
            if not events:
                raise TimeoutError
            for key, _ in events:
                if key.fileobj is process.stdin:
                    unsent = unsent[os.write(key.fd, unsent) :]
                    if not unsent:
                        selector.unregister(process.stdin)
                elif data := os.read(key.fd, 1 << 20):
                    answer += data
                else:
                    raise EOFError
    return bytes(answer[LENGTH.size :])
