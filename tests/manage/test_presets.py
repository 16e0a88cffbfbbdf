"""llama-server's presets: read with what all share, and written so that they read the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewise.core.errors import ConfigError
from edgewise.manage.presets import presets_text, read_presets

FILE = """version = 1
[*]
n-gpu-layers = 99
load-on-startup = false

[nano]
model = /models/nano.gguf
c = 8192
parallel = 2
alias = small, tiny
load-on-startup = true

[big]
LLAMA_ARG_MODEL = big.gguf
n-gpu-layers = 10
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "presets.ini").write_text(FILE)
    return tmp_path / "presets.ini"


def test_each_model_has_what_all_share(path: Path):
    nano, big = read_presets(path).models
    assert (nano.name, nano.model, nano.context, nano.users) == ("nano", "/models/nano.gguf", 8192, 2)
    assert nano.aliases == ("small", "tiny") and nano.load_on_startup
    assert nano.values["n-gpu-layers"] == "99" and big.values["n-gpu-layers"] == "10"
    assert (big.model, big.context, big.load_on_startup) == (str(path.parent / "big.gguf"), None, False)


def test_written_and_read_again_it_is_the_same(path: Path, tmp_path: Path):
    presets = read_presets(path)
    again = tmp_path / "again.ini"
    again.write_text(presets_text(presets))
    assert read_presets(again) == presets


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a]\nno equals sign", "is no presets file"),
        ("[a]\n[a]\n", "is no presets file"),
        ("[a]\nctx-size = lots", r"\[a\] ctx-size must be a whole number"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, said: str):
    (tmp_path / "p.ini").write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_presets(tmp_path / "p.ini")


def test_no_file(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot read"):
        read_presets(tmp_path / "absent.ini")
