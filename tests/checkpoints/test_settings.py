"""Settings from the environment and pip's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewise.checkpoints.settings import PYPI, StoreSettings, parse_size, settings_from_environment
from edgewise.core.errors import ConfigError


def settings(environ: dict[str, str], tmp_path: Path) -> StoreSettings:
    return settings_from_environment({"HOME": str(tmp_path), **environ})


def test_an_empty_environment_gives_the_defaults(tmp_path: Path) -> None:
    plain = settings_from_environment({"HOME": str(tmp_path)}, system_config=False)
    assert plain == StoreSettings(data_dir=tmp_path / ".cache" / "edgewise")
    assert plain.index_urls == (PYPI,)


def test_folders(tmp_path: Path) -> None:
    assert settings({"XDG_CACHE_HOME": "/c"}, tmp_path).data_dir == Path("/c/edgewise")
    assert settings({"XDG_CACHE_HOME": "/c", "EDGEWISE_HOME": "/e"}, tmp_path).data_dir == Path("/e")
    assert settings({"EDGEWISE_HOME": "/e"}, tmp_path).models_dir == Path("/e/models")
    assert settings({"EDGEWISE_HOME": "/e"}, tmp_path).engines_dir == Path("/e/engines")
    elsewhere = settings({"EDGEWISE_HOME": "/e", "EDGEWISE_CACHE_DIR": "/big"}, tmp_path)
    assert (elsewhere.models_dir, elsewhere.engines_dir) == (Path("/e/models"), Path("/big"))


def test_pip_variables_win_over_pip_files(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "pip"
    folder.mkdir(parents=True)
    (folder / "pip.conf").write_text(
        "[global]\nindex-url = https://mirror/simple\nextra-index-url =\n  https://a/simple\n  https://b/simple\n"
        "[download]\nfind-links = /wheels\n"
    )
    from_file = settings({}, tmp_path)
    assert from_file.index_urls == ("https://mirror/simple", "https://a/simple", "https://b/simple")
    assert from_file.find_links == ("/wheels",)
    from_variable = settings({"PIP_INDEX_URL": "https://c/simple", "EDGEWISE_FIND_LINKS": "/x:/y"}, tmp_path)
    assert from_variable.index_urls[0] == "https://c/simple"
    assert from_variable.find_links == ("/x", "/y", "/wheels")


def test_an_unreadable_pip_file_is_left_to_pip(tmp_path: Path) -> None:
    (tmp_path / "odd.conf").write_text("no section\n")
    assert settings({"PIP_CONFIG_FILE": str(tmp_path / "odd.conf")}, tmp_path).find_links is not None


def test_hub(tmp_path: Path) -> None:
    token = tmp_path / ".cache" / "huggingface"
    token.mkdir(parents=True)
    (token / "token").write_text("hf_file\n")
    assert settings({}, tmp_path).hub_token == "hf_file"
    assert settings({"HF_TOKEN": "hf_env"}, tmp_path).hub_token == "hf_env"
    assert settings({"HF_ENDPOINT": "https://mirror/"}, tmp_path).hub_url == "https://mirror"
    assert settings({"HF_HUB_OFFLINE": "1"}, tmp_path).offline
    assert not settings({"EDGEWISE_OFFLINE": "0"}, tmp_path).offline


@pytest.mark.parametrize(
    ("text", "value"), [("50GB", 50 * 10**9), ("1.5g", 1_500_000_000), ("1048576", 1 << 20)]
)
def test_sizes(text: str, value: int) -> None:
    assert parse_size(text, "x") == value


@pytest.mark.parametrize("text", ["", "GB", "-1", "0", "5 parsecs", "nan", "1e999"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="limit must be a size"):
        parse_size(text, "limit")
