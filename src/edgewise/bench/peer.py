"""A handle on the peer engine (llama.cpp or ik_llama.cpp) running in its own process under its own interpreter."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from edgewise.core.errors import ConfigError, EdgewiseError

PEERS = {
    "llama.cpp": ("llama-cpp-python", "llama_cpp"),
    "ik_llama.cpp": ("ik-llama-cpp-python", "ik_llama_cpp._ctypes_api"),
}


class PeerError(EdgewiseError):
    """The peer process failed; the message is its own."""


def find_interpreter(name: str, peers_dir: Path) -> Path:
    """The interpreter of `peers_dir/<name>` (made by `make peers`). Raises ConfigError with the way to get it."""
    if name not in PEERS:
        raise ConfigError(f"unknown peer {name!r}", hint=f"one of: {', '.join(PEERS)}")
    python = peers_dir / name / "bin" / "python"
    if not python.exists():
        package = PEERS[name][0]
        raise ConfigError(
            f"{name} is not installed in {peers_dir / name}",
            hint=f"run `make peers`, or make a virtual environment there and pip install {package} with CMAKE_ARGS=-DGGML_NATIVE=ON",
        )
    return python


class PeerProcess:
    """Sends commands to `peer_runner.py` and returns its answers. A context manager."""

    def __init__(self, name: str, python: Path) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("peer_runner.py")), PEERS[name][1]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        """One command and its answer. Raises PeerError when the peer reports an error or is gone."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps({"op": op, **arguments}) + "\n")
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerError(f"{self.name} ended with status {self._process.wait()} during {op!r}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.name}: {op}: {answer['error']}")
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
