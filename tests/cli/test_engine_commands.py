"""load, unload, ps, logs and list against the program itself: `edgewise gateway` over stand-in engines."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from edgewise.checkpoints.settings import settings_from_environment
from edgewise.cli import load_command
from edgewise.cli.engine_parts import launcher
from edgewise.cli.list_command import _rows as list_rows
from edgewise.cli.list_command import _state as list_state
from edgewise.core.engines import EngineKind, EngineSpec, Launch
from edgewise.core.errors import ConfigError
from edgewise.gateway.supervision.client import ControlClient
from edgewise.manage.engines import Engines
from edgewise.manage.state import State
from tests.support.command_line import Run, command_line
from tests.support.engine_book import free_port, stand_in
from tests.support.models import SMOLLM2, model_path
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.waiting import wait_until


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.setenv("EDGEWISE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return command_line(monkeypatch, capfd)


@contextlib.contextmanager
def gateway(home: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`edgewise gateway` and its address. It is asked to stop at the end, and must."""
    command = [sys.executable, "-m", "edgewise.cli", "gateway", "--port", "0", "--health-s", "0.2", *flags]
    environment = {**os.environ, "EDGEWISE_HOME": str(home), "EDGEWISE_API_KEY": ""}
    errors = (home / "gateway.err").open("w")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    errors.close()
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said, (home / "gateway.err").read_text()
        yield process, said.strip().rsplit(" ", 1)[-1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGKILL)
    finally:
        process.kill()
        process.wait()


def stand_ins(port: int) -> list[int]:
    """The processes of engines that listen there."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"\0--port\0{port}\0".encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def rows(home: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in ControlClient(home).ask("ps")["engines"]}


def test_without_a_gateway_the_commands_say_so(run: Run):
    for arguments in (("load", "x"), ("unload", "x"), ("ps",)):
        status, _, err = run(*arguments)
        assert status == 1 and "no gateway runs here" in err and "`edgewise gateway` starts one" in err
    status, _, err = run("logs", "x")
    assert status == 2 and "'x' has no log" in err


@pytest.mark.slow
def test_an_engine_from_load_to_forget(run: Run, tmp_path: Path):
    program = str(stand_in(tmp_path))
    with gateway(tmp_path) as (_, url):
        port = str(free_port())
        flags = ("--kind", "vllm", "--program", program, "--port", port, "--context", "2048", "--users", "2")
        status, said, _ = run("load", "org/tiny", *flags, "--", "--slow-start-s", "0.1")
        assert status == 0 and "tiny: starting, process " in said and "tiny: ready after " in said
        answer = httpx.post(url + "/v1/chat/completions", json={"model": "tiny", "messages": []})
        assert answer.json()["choices"][0]["message"]["content"].startswith("from ")
        assert run("load", "tiny")[1] == "tiny: is ready already\n"

        (row,) = map(json.loads, run("ps", "--json")[1].splitlines())
        assert (row["model"], row["port"], row["context"], row["users"]) == ("org/tiny", int(port), 2048, 2)
        assert row["state"] == "ready" and row["default"] and row["wanted"] and row["rss_bytes"] > 0
        table = run("ps")[1]
        assert "tiny*" in table and "2,048 x 2" in table and "ready" in table
        listed = [json.loads(line) for line in run("list", "--local", "--json")[1].splitlines()]
        assert [(one["name"], one["engine"]) for one in listed] == [("tiny", "ready")]
        assert "loaded" in run("list")[1] and "catalog" in run("list")[1]
        assert "loading tiny" in run("logs", "tiny", "-n", "3")[1]

        status, _, err = run("load", "tiny", "--context", "4096")
        assert status == 2 and "loaded with other settings" in err and "--yes" in err
        status, said, _ = run("load", "tiny", "--context", "4096", "--yes")
        assert status == 0 and "tiny: unloading" in said and "tiny: ready after" in said
        (again,) = map(json.loads, run("ps", "--json")[1].splitlines())
        assert again["context"] == 4096 and again["pid"] != row["pid"] and again["users"] == 2, (
            "the rest stays"
        )

        status, _, err = run("unload", "tiny")
        assert status == 2 and "tiny stays" in err, "it is the default"
        assert run("unload", "tiny", "--yes", "--forget")[0] == 0
        assert run("ps", "--json")[1] == "" and stand_ins(int(port)) == []


def test_context_keeps_to_the_floor_of_the_gateway_that_runs(run: Run, tmp_path: Path):
    store = settings_from_environment({"EDGEWISE_HOME": str(tmp_path)})
    listed = Engines(State(tmp_path), launcher(store))
    listed.add(
        EngineSpec("tiny", EngineKind.EDGEWISE, str(write_tiny_gguf(tmp_path / "m.gguf")), free_port())
    )
    listed.close()
    with gateway(tmp_path, "--keep-free-gb", "987654"):
        assert "987654.0 must stay" in run("context")[1]
        status, _, err = run("context", "2048", "--yes")
        assert status == 2 and "987654.0 GB must stay free" in err
    assert "987654" not in run("context")[1]


def test_what_runs_stays_where_the_new_settings_do_not_fit(monkeypatch: pytest.MonkeyPatch):
    spec = EngineSpec("tiny", EngineKind.VLLM, "org/tiny", 8081)
    launch = Launch("tiny", spec.kind, (), "", "", need_bytes=1 << 50)
    engines: Any = SimpleNamespace(launch_of=lambda wanted: launch)
    monkeypatch.setattr(load_command, "follow", lambda *said: pytest.fail(f"{said} was asked for"))
    with pytest.raises(ConfigError, match="tiny would need"):
        row = {"state": "ready", "rss_bytes": 1}
        load_command._keep(engines, spec, {"context": 10**9}, {"tiny": spec}, row, 0, yes=True)


def test_the_models_of_a_router_are_listed_below_it():
    spec = EngineSpec("router", EngineKind.LLAMA, "/nowhere/models.ini", 8081)
    models = [{"name": "org/a", "loaded": True}, {"name": "b", "loaded": False}]
    rows = [*list_rows([], [spec], {"router": {"state": "ready", "models": models}})]
    assert [(row["name"], list_state(row)) for row in rows] == [
        ("router", "loaded"),
        ("router/org/a", "loaded"),
        ("router/b", "stopped"),
    ]


@pytest.mark.slow
def test_a_load_that_fails(run: Run, tmp_path: Path):
    program = str(stand_in(tmp_path))
    with gateway(tmp_path):
        status, _, err = run("load", "tiny", "--kind", "vllm", "--program", program, "--", "--die-at-start")
        assert status == 1 and "  | the weights are of another size\n" in err and "ended with status 3" in err
        table = run("ps")[1]
        assert "failed" in table and "| the weights are of another size" in table
        status, _, err = run("load", "./nothing.gguf")
        assert status == 1 and "no such file" in err
        status, _, err = run("load", "tiny", "--port", "99999")
        assert status == 2
        status, _, err = run("load", "sibling", "--kind", "vllm", "--program", program, "--", "--port=1")
        assert status == 2 and "--port cannot be given" in err
        assert "sibling" not in run("ps")[1], "what is refused is not kept either"
        second = [sys.executable, "-m", "edgewise.cli", "gateway", "--port", "0"]
        environment = {**os.environ, "EDGEWISE_HOME": str(tmp_path)}
        refused = subprocess.run(second, capture_output=True, text=True, env=environment, timeout=30)
        assert refused.returncode == 2 and "another gateway looks after the engines" in refused.stderr


@pytest.fixture
def ports() -> Iterator[dict[str, int]]:
    """Of engines a and b; what still listens there after the test is killed."""
    chosen = {"a": free_port(), "b": free_port()}
    yield chosen
    for port in chosen.values():
        for pid in stand_ins(port):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_gateway_killed_at_any_moment(tmp_path: Path, ports: dict[str, int]):
    """What is wanted runs once, and only once, after the next start; what is not does not run; the state file is whole."""
    program = str(stand_in(tmp_path))
    moments = random.Random(4)
    pids: set[int] = set()
    for round_number in range(4):
        engines = Engines(State(tmp_path), None)  # type: ignore[arg-type]
        if not round_number:
            for name, port in ports.items():
                engines.add(EngineSpec(name, EngineKind.VLLM, f"model-{name}", port, program=program))
        engines.close()
        with gateway(tmp_path) as (process, _):
            client = ControlClient(tmp_path)
            if not round_number:
                client.ask("load", name="a")
            wait_until(lambda: rows(tmp_path)["a"]["state"] == "ready", timeout_s=20)
            pids.add(rows(tmp_path)["a"]["pid"])
            assert stand_ins(ports["a"]) == [rows(tmp_path)["a"]["pid"]]
            with contextlib.suppress(Exception):
                client.ask("unload", name="b")
            loading = client.do("load", name="b")
            next(loading)
            time.sleep(moments.uniform(0.0, 0.4))
            process.kill()
    assert len(pids) == 1, "a was adopted each time"
    with gateway(tmp_path):
        wait_until(lambda: rows(tmp_path)["a"]["state"] == "ready", timeout_s=20)
        b = rows(tmp_path)["b"]
        wait_until(lambda: len(stand_ins(ports["b"])) == (rows(tmp_path)["b"]["state"] != "stopped"))
        assert b["state"] in ("stopped", "starting", "warming", "ready")
    assert stand_ins(ports["a"]) == [] and stand_ins(ports["b"]) == []
    with sqlite3.connect(tmp_path / "state.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT * FROM ran").fetchall() == []


@pytest.mark.slow
def test_logs_are_read_from_their_end_and_followed(run: Run, tmp_path: Path):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.log").write_text("".join(f"line {i}\n" for i in range(20000)))
    (folder / "b.log").write_text("other\n")
    assert run("logs", "a", "-n", "2")[1] == "line 19998\nline 19999\n"
    assert run("logs", "a", "-n", "0")[1] == ""
    assert len(run("logs", "a", "-n", "15000")[1].splitlines()) == 15000
    assert run("logs", "-n", "1")[1] == "==> a <==\nline 19999\n==> b <==\nother\n"
    for name in ("c", "../state", "..", ""):
        assert run("logs", name)[0] == 2
    command = [sys.executable, "-m", "edgewise.cli", "logs", "-f", "-n", "1"]
    environment = {**os.environ, "EDGEWISE_HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        began = [process.stdout.readline() for _ in range(4)]
        assert began[-1] == "other\n"
        with (folder / "b.log").open("a") as file:
            file.write("more\n")
        assert process.stdout.readline() == "more\n"
        (folder / "a.log").write_text("emptied\n")
        assert [process.stdout.readline() for _ in range(2)] == ["==> a <==\n", "emptied\n"]
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130


@pytest.mark.model
@pytest.mark.slow
def test_a_model_of_the_catalog(tmp_path: Path, request: pytest.FixtureRequest):
    """A real engine: loaded by its name, asked through the gateway, unloaded."""
    model_path()  # in the store of the person who tests
    real = settings_from_environment(os.environ).models_dir
    (tmp_path / "models").symlink_to(real, target_is_directory=True)
    run: Run = request.getfixturevalue("run")
    with gateway(tmp_path) as (_, url):
        status, said, err = run("load", SMOLLM2, "--context", "1024")
        assert status == 0 and f"{SMOLLM2}: ready after" in said, err
        (row,) = map(json.loads, run("ps", "--json")[1].splitlines())
        assert row["state"] == "ready" and row["rss_bytes"] < row["need_bytes"] < 2e9, (
            "what it needs was told from the file"
        )
        body = {
            "model": row["name"],
            "messages": [{"role": "user", "content": "Say hello."}],
            "max_tokens": 16,
        }
        answer = httpx.post(url + "/v1/chat/completions", json=body, timeout=60).json()
        assert answer["model"] == row["name"] and answer["choices"][0]["message"]["content"].strip()
        assert run("unload", row["name"], "--yes")[0] == 0
        assert httpx.post(url + "/v1/chat/completions", json=body, timeout=60).status_code == 503
