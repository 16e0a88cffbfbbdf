"""What `install`, `context` and `uninstall` do to engines that run: the gateway as a service of a stand-in systemd, over stand-in engines."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgewise.core.errors import EdgewiseError
from edgewise.gateway.supervision.client import ControlClient
from tests.support import systemd_stand_in
from tests.support.command_line import Run, command_line
from tests.support.engine_book import free_port, stand_in
from tests.support.tiny_gguf import TinyModel, write_tiny_gguf
from tests.support.waiting import wait_until

pytestmark = pytest.mark.http

UNIT = "edgewise-gateway.service"


@pytest.fixture
def units(tmp_path: Path) -> Iterator[Path]:
    """The folder of units. Whatever its stand-in still runs at the end is ended."""
    folder = tmp_path / "config" / "systemd" / "user"
    folder.mkdir(parents=True)
    yield folder
    if pid := systemd_stand_in.running(folder / UNIT):
        systemd_stand_in.stop(folder / UNIT)
        assert systemd_stand_in.running(folder / UNIT) != pid


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, units: Path
) -> Run:
    programs = tmp_path / "bin"
    programs.mkdir()
    stand = shlex.join([sys.executable, systemd_stand_in.__file__, str(units)])
    for name, command in (("systemctl", f'exec {stand} "$@"'), ("loginctl", "exit 0")):
        (programs / name).write_text(f"#!/bin/sh\n{command}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("EDGEWISE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    return command_line(monkeypatch, capfd)


def engine(tmp_path: Path) -> dict[str, Any]:
    """The only engine's row, once the gateway answers and has it ready."""

    def ready() -> dict[str, Any] | None:
        try:
            (row,) = ControlClient(tmp_path / "home").ask("ps")["engines"]
        except (EdgewiseError, ValueError):
            return None
        return dict(row) if row["state"] == "ready" else None

    wait_until(lambda: ready() is not None, timeout_s=20)
    found = ready()
    assert found is not None
    return found


def gateway_up(tmp_path: Path) -> bool:
    try:
        return "engines" in ControlClient(tmp_path / "home").ask("ps")
    except EdgewiseError:
        return False


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_engines_run_on_through_installs_and_end_with_uninstall(run: Run, tmp_path: Path, units: Path):
    model = write_tiny_gguf(tmp_path / "tiny.gguf", TinyModel(context_length=65536))
    flags = ("--port", str(free_port()), "--keep-free-gb", "0")
    assert run("install", *flags)[0] == 0
    wait_until(lambda: gateway_up(tmp_path), timeout_s=20)
    program = str(stand_in(tmp_path))
    status, out, errors = run("load", str(model), "--kind", "vllm", "--program", program)
    assert status == 0, out + errors
    first, gateway = engine(tmp_path)["pid"], systemd_stand_in.running(units / UNIT)

    assert "runs as before" in run("install", *flags)[1]
    assert systemd_stand_in.running(units / UNIT) == gateway and engine(tmp_path)["pid"] == first

    status, out, errors = run("install", *flags, "--search-url", "http://127.0.0.1:8888")
    assert status == 0 and "was started" in out, out + errors
    wait_until(lambda: gateway_up(tmp_path), timeout_s=20)
    assert systemd_stand_in.running(units / UNIT) != gateway
    assert engine(tmp_path)["pid"] == first and is_alive(first), "what did not change is not started again"

    status, out, errors = run("context", "4096", "3", "--yes")
    assert status == 0 and "runs with it now" in out, out + errors
    second = engine(tmp_path)["pid"]
    words = Path(f"/proc/{second}/cmdline").read_text().split("\0")
    assert second != first and words[words.index("--max-model-len") + 1] == "4096"
    assert words[words.index("--max-num-seqs") + 1] == "3"

    status, out, errors = run("uninstall", "--purge", "--yes")
    assert status == 0 and "were removed" in out, out + errors
    assert not (units / UNIT).exists() and not is_alive(second) and not (tmp_path / "home").exists()
    assert model.exists(), "only what Edgewise keeps of its own"


def test_a_gateway_that_is_not_a_service_keeps_what_it_uses(run: Run, tmp_path: Path, units: Path):
    """--purge under a gateway that somebody started by hand."""
    assert run("install", "--port", str(free_port()))[0] == 0
    wait_until(lambda: gateway_up(tmp_path), timeout_s=20)
    pid = systemd_stand_in.running(units / UNIT)
    assert pid is not None
    (units / UNIT).with_suffix(".pid").unlink()
    try:
        status, _, errors = run("uninstall", "--purge", "--yes")
        assert status == 2 and f"process {pid}" in errors and (tmp_path / "home" / "state.db").exists()
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not is_alive(pid), timeout_s=20)
