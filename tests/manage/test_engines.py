"""The list of engines, the state file's second version, and what is written down of processes."""

from __future__ import annotations

import dataclasses
import socket
import sqlite3
import stat
from pathlib import Path

import pytest

from edgewise.core.engines import EngineKind, EngineSpec, Launch, Ran
from edgewise.core.errors import ConfigError
from edgewise.core.keys import KeyLimits
from edgewise.manage.engines import Engines, changed, check_name, unused_name
from edgewise.manage.keys import create_key, list_keys
from edgewise.manage.state import State

SPEC = EngineSpec(
    "qwen",
    EngineKind.EDGE_LLM,
    "/models/qwen",
    8081,
    context=65536,
    users=2,
    reasoning_parser="qwen3",
    tool_parser="qwen3_xml",
    args=("--a", 'b "c"'),
    env={"X": "ü"},
    program="/opt/serve",
    wanted=True,
)
OTHER = EngineSpec("nano", EngineKind.LLAMA, "models.ini", 8082)


class Echo:
    """Launches that name their spec."""

    def launch(self, spec: EngineSpec) -> Launch:
        return Launch(spec.name, spec.kind, (spec.model,), f"http://127.0.0.1:{spec.port}", "x.log")

    def model_bytes(self, spec: EngineSpec, model: str) -> int:
        return len(spec.name + model)


@pytest.fixture
def engines(tmp_path: Path):
    opened = Engines(State(tmp_path), Echo())
    yield opened
    opened.close()


def test_a_spec_comes_back_as_it_was(engines: Engines, tmp_path: Path):
    engines.add(SPEC)
    engines.add(OTHER)
    assert engines.list() == [SPEC, OTHER] and engines.get("qwen") == SPEC
    again = Engines(State(tmp_path), Echo())
    assert again.names() == ["qwen", "nano"] and again.wanted() == {"qwen"}
    again.close()
    assert stat.S_IMODE((tmp_path / "state.db").stat().st_mode) == 0o600


def test_replacing_keeps_the_place(engines: Engines):
    engines.add(SPEC)
    engines.add(OTHER)
    smaller = changed(SPEC, context=4096, users=None)
    assert (smaller.context, smaller.users) == (4096, 2)
    engines.replace(smaller)
    assert engines.list() == [smaller, OTHER]
    engines.remove("qwen")
    engines.add(SPEC)
    assert engines.names() == ["nano", "qwen"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (dataclasses.replace(OTHER, name="qwen"), "there is an engine 'qwen' already"),
        (dataclasses.replace(OTHER, port=8081), "port 8081 is qwen's"),
        (dataclasses.replace(OTHER, port=0), "0 is no port"),
        (dataclasses.replace(OTHER, name="a/b"), "one word"),
        (dataclasses.replace(OTHER, name="../x"), "one word"),
        (dataclasses.replace(OTHER, name=".."), "one word"),
        (dataclasses.replace(OTHER, name="-x"), "one word"),
        (dataclasses.replace(OTHER, name=""), "one word"),
    ],
)
def test_what_cannot_be_added(engines: Engines, spec: EngineSpec, said: str):
    engines.add(SPEC)
    with pytest.raises(ConfigError, match=said):
        engines.add(spec)
    assert engines.list() == [SPEC]


def test_a_port_another_process_took_meanwhile(engines: Engines):
    engines.add(SPEC)
    with pytest.raises(ConfigError, match="port 8081 is another engine's"):
        engines._write(dataclasses.replace(OTHER, port=8081))
    assert engines.list() == [SPEC], "and nobody lost theirs"


def test_nobody_of_that_name(engines: Engines):
    for action in (engines.get, engines.remove, engines.launch):
        with pytest.raises(ConfigError, match="there is no engine 'x'"):
            action("x")
    with pytest.raises(ConfigError):
        engines.replace(SPEC)


def test_wanting_and_noting(engines: Engines):
    engines.add(OTHER)
    assert engines.wanted() == frozenset()
    engines.want("nano", True)
    engines.want("nobody", True)
    assert engines.wanted() == {"nano"} and engines.get("nano").wanted
    engines.note("nano", Ran(7, 70, "d"))
    engines.note("gone", Ran(8, 80, "e"))
    engines.note("nano", Ran(9, 90, "f"))
    engines.remove("nano")
    assert engines.ran() == {"nano": Ran(9, 90, "f"), "gone": Ran(8, 80, "e")}, (
        "also of those that left the list"
    )
    engines.note("gone", None)
    engines.note("gone", None)
    assert set(engines.ran()) == {"nano"}


def test_it_is_the_launcher_that_launches(engines: Engines):
    engines.add(OTHER)
    assert engines.launch("nano").argv == ("models.ini",)
    assert engines.model_bytes("nano", "m") == 5


def test_a_free_port_is_nobodys(engines: Engines):
    first = engines.free_port()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", first))
        other.listen()
        second = engines.free_port()
        assert second != first
        engines.add(dataclasses.replace(OTHER, port=second))
        assert engines.free_port() not in (first, second)


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("qwen3", "qwen3"),
        ("a b:c/d", "a-b-c-d"),
        ("taken", "taken-3"),
        ("...", "engine"),
        ("-x", "x"),
        ("a\tb\0", "a-b"),
    ],
)
def test_names_are_made_of_anything(wanted: str, name: str):
    assert unused_name(wanted, ["taken", "taken-2", "other"]) == name
    check_name(name)


def test_a_file_of_the_first_version_is_brought_up_and_keeps_its_keys(tmp_path: Path):
    state = State(tmp_path)
    key, _ = create_key(state, "ada", KeyLimits(max_concurrent=3))
    state.close()
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.execute("DROP TABLE engines")
        connection.execute("DROP TABLE ran")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    engines = Engines(State(tmp_path), Echo())
    engines.add(SPEC)
    engines.close()
    state = State(tmp_path)
    assert list_keys(state) == [key] and state.read("PRAGMA user_version") == [(2,)]
    state.close()
