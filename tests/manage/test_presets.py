"""llama-server's presets: read with what all share, and written so that they read the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewise.core.errors import ConfigError
from edgewise.manage.presets import preset_of, presets_with, read_presets, replaced

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


def test_a_model_is_found_by_its_name_before_an_alias(path: Path):
    assert preset_of(path, "tiny").name == "nano" and preset_of(path, "big").name == "big"
    with pytest.raises(ConfigError, match="has no model 'other'") as caught:
        preset_of(path, "other")
    assert caught.value.hint == "it has nano, big"


@pytest.mark.parametrize("name", ["nano", "big"])
def test_what_is_set_is_read_again_and_nothing_else_changes(path: Path, name: str):
    path.write_text(FILE.replace("[big]", "# the large one\n[big]"))
    other = preset_of(path, {"nano": "big", "big": "nano"}[name])
    wanted = replaced(preset_of(path, name), 4096, 3)
    path.write_text(presets_with(path.read_text(), wanted))
    assert preset_of(path, name) == wanted and (wanted.context, wanted.users) == (12288, 3)
    assert preset_of(path, other.name) == other
    text = path.read_text()
    assert text.startswith("version = 1") and "# the large one" in text
    assert ("\nc = " in text) == (name == "big"), "one name for one thing"


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
