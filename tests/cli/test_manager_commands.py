"""install, uninstall and context, with a systemctl and loginctl that write down what they are asked."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from edgewise.checkpoints.settings import StoreSettings
from edgewise.cli import context_command
from edgewise.core.engines import EngineKind, EngineSpec
from edgewise.manage.engines import Engines, changed
from edgewise.manage.latest import Latest
from edgewise.manage.launch import Launcher, LaunchSettings
from edgewise.manage.state import State
from tests.support.command_line import Run, command_line
from tests.support.router_server import RouterModel, router_server
from tests.support.tiny_gguf import write_tiny_gguf

pytestmark = pytest.mark.slow

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

    return command_line(monkeypatch, capfd)


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


def test_what_is_said_counts_more_than_the_old_file(run: Run, tmp_path: Path, tiny: str):
    """And an engine whose port is another's is named, not an error half-way."""
    old = tmp_path / "env"
    old.write_text("MODEL=/m/nano.gguf\nEDGE_MODEL=/c/Qwen\nEDGE_PORT=8090\nPORT=8111\n")
    status, _, errors = run("install", "--import", str(old), "--port", "8222")
    unit = (tmp_path / UNIT).read_text()
    assert status == 0 and "--port 8222" in unit and "8111" not in unit
    assert "--alias nemotron=nano --alias nemotron-think=nano" in unit
    assert "not taken: Qwen: port 8090 is tiny's" in errors
    listed = engines(tmp_path / "home")
    assert listed.names() == ["tiny", "nano"]
    listed.close()


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


@pytest.fixture
def router(tmp_path: Path) -> Path:
    """The presets of an engine that is a router of one tiny model."""
    model = write_tiny_gguf(tmp_path / "tiny.gguf")
    presets = tmp_path / "models.ini"
    presets.write_text(f"# mine\n[small]\nmodel = {model}\nc = 2048\nnp = 2\n")
    listed = engines(tmp_path / "home")
    listed.add(EngineSpec("many", EngineKind.LLAMA, str(presets), 8091))
    listed.close()
    return presets


def test_a_router_s_model_is_set_in_its_presets(run: Run, router: Path):
    assert "many/small: 1,024 tokens x 2: 0.5 GB" in run("context")[1]
    status, _, errors = run("context", "4096", "--engine", "many")
    assert status == 2 and "--engine many/MODEL" in errors
    status, _, errors = run("context", "4096", "--engine", "many/other")
    assert status == 2 and "has no model 'other'" in errors
    before = router.read_text()
    assert run("context", "4096", "3", "--engine", "many/small")[0] == 2 and router.read_text() == before
    status, out, _ = run("context", "4096", "3", "--engine", "many/small", "--yes")
    assert status == 0 and "many/small: 4,096 tokens x 3" in out and "set; it counts" in out
    text = router.read_text()
    assert text.startswith("# mine\n[small]") and "ctx-size = 12288" in text and "parallel = 3" in text


def test_a_router_that_runs_reads_its_presets_again(
    run: Run, router: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Between unloading and loading the model; the gateway is a stand-in that does both."""
    with router_server({"small": RouterModel("loaded")}) as (server, _):
        told: list[str] = []
        row = {"name": "many", "models": [{"name": "small", "loaded": True}]}
        monkeypatch.setattr(context_command, "running", lambda: {"many": row})
        monkeypatch.setattr(
            context_command,
            "follow",
            lambda what, name: told.append(f"{what} {name} after {len(server.requests)}"),
        )
        listed = engines(tmp_path / "home")
        listed.replace(changed(listed.get("many"), port=urlsplit(server.url).port))
        listed.close()
        assert run("context", "4096", "--engine", "many/small", "--yes")[0] == 0
        assert [(one.method, one.path) for one in server.requests] == [("GET", "/models?reload=1")]
        assert told == ["unload many/small after 0", "load many/small after 1"]


def test_the_newest_models_are_kept_for_when_the_hub_is_away(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    status, _, errors = run("list-latest")
    assert status == 1 and "cannot be asked" in errors
    (tmp_path / "home").mkdir(exist_ok=True)
    known = Latest("hf:a/b-GGUF:Q8_0", "2026-11-20T00:00:00Z", "Q8_0", 10**9, 2 * 10**9, "qwen3", "edgewise")
    asked_s = time.time() - 7200
    (tmp_path / "home" / "latest.json").write_text(
        json.dumps({"models": [asdict(known)], "asked_s": asked_s})
    )
    status, out, errors = run("list-latest")
    assert status == 0 and "2.0 h ago" in errors and "hf:a/b-GGUF:Q8_0" in out and "2026-11-20" in out
    status, out, _ = run("list-latest", "--json")
    assert status == 0 and json.loads(out) == asdict(known)
