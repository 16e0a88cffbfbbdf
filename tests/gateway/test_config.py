"""The gateway's configuration: what a file says, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewise.core.errors import ConfigError
from edgewise.gateway.config import GatewayConfig, UpstreamConfig, engine_of, read_config
from edgewise.gateway.profile import Kind

WHOLE = """
default = "qwen"
strict_model_names = true
refresh_s = 5
health_s = 0.5
[aliases]
claude-sonnet-4-5 = "qwen3"
[[upstream]]
name = "local"
url = "http://127.0.0.1:8079/v1/"
[[upstream]]
name = "qwen"
url = "https://box.example:8081"
kind = "edge-llm"
key_file = "qwen.key"
weight = 2
max_in_flight = 4
headers = { x-team = "a" }
models = ["qwen3"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "gateway.toml"
    path.write_text(text)
    return path


def test_a_whole_file(tmp_path: Path):
    (tmp_path / "qwen.key").write_text("secret\n")
    config = read_config(written(tmp_path, WHOLE))
    local, qwen = config.upstreams
    assert local == UpstreamConfig("local", "http://127.0.0.1:8079")
    assert qwen == UpstreamConfig(
        "qwen", "https://box.example:8081", Kind.EDGE_LLM, "secret", 2.0, 4, ("qwen3",), {"x-team": "a"}
    )
    assert (config.default, config.strict_model_names, config.refresh_s) == ("qwen", True, 5.0)
    assert config.aliases == {"claude-sonnet-4-5": "qwen3"}
    assert "secret" not in repr(config)


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("defualt = 'x'", "there is no key 'defualt'", "'default'"),
        ("[[upstrem]]\nname = 'a'", "there is no key 'upstrem'", "'upstream'"),
        ("[[upstream]]\nname = 'a'\nulr = 'http://x'", "there is no key 'upstream[1].ulr'", "'url'"),
        ("[[upstream]]\nname = 'a'", "upstream[1].url is missing", None),
        ("[[upstream]]\nname = 'a'\nurl = 'x:1'", "upstream[1].url must be an http address", "http://"),
        ("[[upstream]]\nname = 'a'\nurl = 'http://k@x'", "must be an address alone", "key_file"),
        ("[[upstream]]\nname = 'a'\nurl = 'http://x:99999'", "must be an http address", None),
        ("[[upstream]]\nname = 'a b'\nurl = 'http://x'", "upstream[1].name must be one word", None),
        ("[[upstream]]\nname = 'a'\nurl = 'http://x'\nkind = 'lama'", "upstream[1].kind must be one of", "'llama'"),
        ("[[upstream]]\nname = 'a'\nurl = 'http://x'\nweight = -1", "upstream[1].weight", None),
        ("[[upstream]]\nname = 'a'\nurl = 'http://x'\nmax_in_flight = 0", "whole number", None),
        ("[[upstream]]\nname = 'a'\nurl = 'http://x'\nkey_file = 'none'", "cannot read", None),
        ("[upstream]\nname = 'a'", "must be a list of tables", "[[upstream]]"),
        ("default = 'b'\n[[upstream]]\nname = 'bb'\nurl = 'http://x'", "there is no upstream 'b'", "'bb'"),
        ("refresh_s = 0", "refresh_s must be at least 0.05 s", None),
        ("strict_model_names = 1", "must be true or false", None),
        ("aliases = { a = 1 }", "aliases.a must be text", None),
        ("[[upstream]]\nname = 'a'\nurl = 'http://x'\n" * 2, "two upstreams are called 'a'", "names of their own"),
        ("x = ", "is not TOML", None),
    ],
)  # fmt: skip
def test_what_is_said_of_a_wrong_file(tmp_path: Path, text: str, said: str, hint: str | None):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert said in caught.value.message
    assert str(path) in caught.value.message
    if hint is not None:
        assert hint in (caught.value.hint or "")


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot read"):
        read_config(tmp_path / "none.toml")


def test_engines_of_the_command_line():
    assert engine_of("a=http://x:1/v1") == UpstreamConfig("a", "http://x:1")
    assert engine_of("a:llama=http://x:1") == UpstreamConfig("a", "http://x:1", Kind.LLAMA)
    for wrong in ("a", "a=", "=http://x", "a:vlm=http://x", "a=x"):
        with pytest.raises(ConfigError):
            engine_of(wrong)


def test_an_empty_configuration_has_no_upstream():
    assert GatewayConfig().upstreams == ()
