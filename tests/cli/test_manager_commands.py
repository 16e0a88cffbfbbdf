"""install, uninstall and context, with a systemctl and loginctl that write down what they are asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgewise.checkpoints.settings import StoreSettings
from edgewise.cli import main
from edgewise.core.engines import EngineKind, EngineSpec
from edgewise.manage.engines import Engines
from edgewise.manage.launch import Launcher, LaunchSettings
from edgewise.manage.state import State
from tests.support.tiny_gguf import write_tiny_gguf

Run = Callable[..., tuple[object, str, str]]
UNIT = Path("config/systemd/user/edgewise-gateway.service")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("systemctl", "loginctl"):
        program = programs / name
        program.write_text(
            f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/asked\ncase "$*" in *is-active*) exit 3;; esac\n'
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("EDGEWISE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgewise", *arguments])
        status: object = 0
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
        return status, *capfd.readouterr()

    return call


def engines(home: Path) -> Engines:
    store = StoreSettings(data_dir=home)
    return Engines(State(home), Launcher(LaunchSettings(store, home / "logs")))


def test_install_and_uninstall(run: Run, tmp_path: Path):
    status, out, _ = run("install", "--port", "8123", "--memory-max", "48G")
    assert status == 0 and "http://127.0.0.1:8123" in out
    unit = (tmp_path / UNIT).read_text()
    assert f"ExecStart={sys.executable} -m edgewise.cli gateway --host 127.0.0.1 --port 8123" in unit
    assert "MemoryMax=48G" in unit and f"EDGEWISE_HOME={tmp_path / 'home'}" in unit
    asked = (tmp_path / "asked").read_text()
    assert "loginctl enable-linger" in asked and "systemctl --user restart edgewise-gateway.service" in asked
    status, out, _ = run("uninstall")
    assert status == 0 and not (tmp_path / UNIT).exists() and "were kept" in out
    assert "nothing was installed" in run("uninstall")[1]


def test_install_takes_over_old_settings(run: Run, tmp_path: Path):
    old = tmp_path / "env"
    old.write_text("MODEL=/m/nano.gguf\nPORT=8111\nMIN_FREE_GB=4\nKEYRING=/k\n")
    status, out, errors = run("install", "--import", str(old))
    assert status == 0 and "nano: llama-server, /m/nano.gguf" in out and "not taken: KEYRING" in errors
    assert "--port 8111 --keep-free-gb 4" in (tmp_path / UNIT).read_text().replace(" --host 127.0.0.1", "")
    listed = engines(tmp_path / "home")
    assert [one.name for one in listed.list()] == ["nano"] and listed.wanted() == {"nano"}
    listed.close()
    assert "is an engine already" in run("install", "--import", str(old))[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--memory-max", "lots"), "--memory-max must be a size"),
        (("--presets", "x.ini"), "--presets goes with --import"),
        (("--import", "/absent"), "cannot read"),
    ],
)
def test_what_install_refuses(run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str):
    status, _, errors = run("install", *arguments)
    assert status == 2 and said in errors and not (tmp_path / UNIT).exists()


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """The name of an engine of a tiny model."""
    model = write_tiny_gguf(tmp_path / "tiny.gguf")
    listed = engines(tmp_path / "home")
    listed.add(EngineSpec("tiny", EngineKind.EDGEWISE, str(model), 8090, context=2048))
    listed.close()
    return "tiny"


def test_the_cost_is_shown_before_it_is_set(run: Run, tmp_path: Path, tiny: str):
    status, out, _ = run("context")
    assert status == 0 and "tiny: 2,048 tokens x 1: 0.5 GB" in out
    status, out, errors = run("context", "4096", "2")
    assert status == 2 and "4,096 tokens x 2" in out and "nothing was changed" in errors
    status, out, _ = run("context", "4096", "2", "--yes")
    assert status == 0 and out.index("4,096 tokens x 2") < out.index("set; it counts")
    listed = engines(tmp_path / "home")
    assert (listed.get(tiny).context, listed.get(tiny).users) == (4096, 2)
    listed.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("100000000", "1000"), "tiny would need"),
        (("512",), "1024"),
        (("4096", "0"), "greater than or equal to 1"),
        (("4096", "--engine", "other"), "there is no engine 'other'"),
    ],
)
def test_what_context_refuses(run: Run, tmp_path: Path, tiny: str, arguments: tuple[str, ...], said: str):
    status, _, errors = run("context", *arguments, "--yes")
    assert status == 2 and said in errors
    listed = engines(tmp_path / "home")
    assert (listed.get(tiny).context, listed.get(tiny).users) == (2048, 1)
    listed.close()


def test_there_is_no_engine_yet(run: Run):
    status, _, errors = run("context")
    assert status == 2 and "there is no engine yet" in errors
