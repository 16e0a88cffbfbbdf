"""A real llama-server, from the xllamacpp wheel in its own environment (`benchmarks/build_peers.sh` makes it); tests skip where there is none."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from edgewise.checkpoints.settings import settings_from_environment

PROGRAM = """
import sys, xllamacpp as x
path, port, window = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
p = x.CommonParams()
p.model.path, p.port, p.n_ctx, p.n_parallel, p.kv_unified = path, port, 2 * window, 2, True
server = x.Server(p)
sys.stdin.read()
"""


def _interpreter() -> Path:
    folder = settings_from_environment(os.environ).data_dir / "peers" / "llama-server"
    found = folder / "bin" / "python"
    if not found.exists():
        pytest.skip("no llama-server here; benchmarks/build_peers.sh gets one")
    return found


@contextlib.contextmanager
def llama_server(model: Path, *, window: int = 4096) -> Iterator[str]:
    """Its address, once it answers. Two requests at once, each with the whole window."""
    interpreter = _interpreter()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(interpreter), "-c", PROGRAM, str(model), str(port), str(window)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, process)
            yield url
        finally:
            process.kill()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if process.poll() is not None:
            pytest.fail(f"llama-server ended with status {process.returncode}")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url + "/health", timeout=5).status_code == 200:
                return
        time.sleep(0.1)
    pytest.fail("llama-server did not come up")
