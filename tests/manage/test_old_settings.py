"""The settings of thor-tigress-serve: every name is taken, or named as not taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewise.core.engines import EngineKind
from edgewise.core.errors import ConfigError
from edgewise.manage.old_settings import read_old_settings

FILE = """
# thor
MODEL="/models/nemotron nano.gguf"   # the Nano
USERS=4
CONTEXT=1048576
MODELS_MAX=2
MIN_FREE_GB=8
export EDGE_MODEL=/ckpt/Qwen3.6-35B-A3B-NVFP4
EDGE_PORT=8081
EDGE_CONTEXT=65536
EDGE_MODELS='Lightning=8082 /other/Third=8083'
EDGE_SERVER=/venv/bin/tensorrt-edgellm-serve
PORT=8080
MODEL_PORT=8079
SEARCH_PORT=8888
SERVER=/opt/llama-server
KEYRING=/home/ada/keys
AGENT_DEFAULT=edge
COLOUR=green
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "env").write_text(FILE)
    return tmp_path / "env"


def test_engines_come_in_the_old_order_with_their_settings(path: Path):
    found = read_old_settings(path)
    assert [(one.name, one.kind, one.model, one.port) for one in found.engines] == [
        ("Qwen3.6-35B-A3B-NVFP4", EngineKind.EDGE_LLM, "/ckpt/Qwen3.6-35B-A3B-NVFP4", 8081),
        ("Lightning", EngineKind.EDGE_LLM, "/ckpt/Lightning", 8082),
        ("Third", EngineKind.EDGE_LLM, "/other/Third", 8083),
        ("nemotron-nano", EngineKind.LLAMA, "/models/nemotron nano.gguf", 8079),
    ]
    assert {one.context for one in found.engines[:3]} == {65536}
    assert {one.program for one in found.engines[:3]} == {"/venv/bin/tensorrt-edgellm-serve"}
    llama = found.engines[3]
    assert (llama.context, llama.users, llama.program, llama.wanted) == (
        1048576,
        4,
        "/opt/llama-server",
        True,
    )
    assert found.flags == (
        ("--port", "8080"),
        ("--keep-free-gb", "8"),
        ("--search-url", "http://127.0.0.1:8888"),
        ("--alias", "nemotron=nemotron-nano"),
        ("--alias", "nemotron-think=nemotron-nano"),
        ("--alias", "/models/nemotron nano.gguf=nemotron-nano"),
    )


def test_what_ran_by_default_goes_on(tmp_path: Path):
    (tmp_path / "env").write_text("MODEL=nano.gguf\nEDGE_MODEL=/c/Qwen\n")
    found = read_old_settings(tmp_path / "env")
    llama, edge = found.engines
    assert (llama.port, llama.context, llama.users) == (8079, 1048576, 4)
    assert (edge.port, edge.context, edge.users) == (8081, 32768, 1)
    assert dict(found.flags)["--search-url"] == "http://127.0.0.1:8888" and not found.not_taken


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("USERS=2\nSERVER=/s\nMODELS_MAX=3\nMODEL_PORT=1", {"USERS", "SERVER", "MODELS_MAX", "MODEL_PORT"}),
        ("MODEL=m\nEDGE_PORT=1\nEDGE_MODELS=a=1", {"EDGE_PORT", "EDGE_MODELS"}),
        ("MODEL=m\nAGENT_DEFAULT=edge", {"AGENT_DEFAULT"}),
        ("MODEL=m\nAGENT_DEFAULT=llama", {"AGENT_DEFAULT"}),
        ("MODEL=m\nUSERS=\nEDGE_MODEL=", {"USERS", "EDGE_MODEL"}),
    ],
)
def test_what_has_nothing_to_be_for_is_named(tmp_path: Path, text: str, names: set[str]):
    (tmp_path / "env").write_text(text)
    told = read_old_settings(tmp_path / "env").not_taken
    assert {line.partition(":")[0] for line in told} == names


def test_what_is_not_taken_is_named(path: Path):
    told = "\n".join(read_old_settings(path).not_taken)
    assert "KEYRING: " in told and "COLOUR: " in told and "MODELS_MAX: " in told
    for name in ("USERS", "EDGE_PORT", "SEARCH_PORT", "AGENT_DEFAULT"):
        assert f"{name}:" not in told


def test_presets_make_a_router(path: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"cannot read .*presets\.ini"):
        read_old_settings(path, presets=tmp_path / "presets.ini")
    (tmp_path / "presets.ini").write_text("[nano]\nmodel = /m.gguf\n")
    found = read_old_settings(path, presets=tmp_path / "presets.ini")
    router = next(one for one in found.engines if one.kind is EngineKind.LLAMA)
    assert router.model == str(tmp_path / "presets.ini") and router.args == ("--models-max", "2")
    told = {line.partition(":")[0] for line in found.not_taken}
    assert {"MODEL", "USERS", "CONTEXT"} <= told and not {"MODELS_MAX", "SERVER", "MODEL_PORT"} & told
    assert "--alias" not in dict(found.flags)


def test_without_the_edge_llama_is_first_and_the_environment_wins(path: Path):
    path.write_text(FILE.replace("AGENT_DEFAULT=edge", ""))
    found = read_old_settings(path, {"MODEL_PORT": "9000", "HOME": "/root"})
    assert found.engines[0].kind is EngineKind.LLAMA and found.engines[0].port == 9000
    assert not any(line.startswith("HOME") for line in found.not_taken), "the environment is not the file"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("USERS=many\nMODEL=x", "USERS must be a whole number"),
        ("USERS=0\nMODEL=x", "USERS must be a whole number from 1"),
        ("just words", "line 1"),
        ('MODEL="open', "line 1"),
        ("EDGE_MODEL=/a\nEDGE_MODELS=b", "is not FOLDER=PORT"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, said: str):
    (tmp_path / "env").write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_old_settings(tmp_path / "env")


def test_no_file(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot read"):
        read_old_settings(tmp_path / "absent")
