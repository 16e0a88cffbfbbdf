"""The model store: states, sizes, removal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgewise.build import engine_dir_for
from edgewise.checkpoints.settings import StoreSettings
from edgewise.core.errors import ModelNotFoundError
from edgewise.manage.store import StoredModel, list_models, remove_model
from tests.build.plain_packer import plain_tools
from tests.support.tiny_gguf import write_tiny_gguf


def add_entry(settings: StoreSettings, name: str) -> Path:
    """A pulled model, as a pull leaves it."""
    folder = settings.models_dir / name
    folder.mkdir(parents=True)
    path = write_tiny_gguf(folder / "model.gguf")
    record = {"name": name, "files": [{"name": path.name, "bytes": path.stat().st_size, "sha256": "00"}]}
    (folder / "model.json").write_text(json.dumps(record))
    return path


def by_name(settings: StoreSettings) -> dict[str, StoredModel]:
    return {model.name: model for model in list_models(settings)}


def test_states(tmp_path: Path) -> None:
    settings = StoreSettings(data_dir=tmp_path)
    path = add_entry(settings, "gemma3-270m")
    damaged = add_entry(settings, "mine")
    damaged.write_bytes(b"short")
    begun = settings.models_dir / ".partial" / "smollm2-135m-instruct"
    begun.mkdir(parents=True)
    (begun / "half").write_bytes(bytes(1000))
    models = by_name(settings)
    assert {name: model.state for name, model in models.items()} == {
        "gemma3-270m": "ready",
        "mine": "damaged",
        "smollm2-135m-instruct": "partial",
        "qwen2.5-coder-0.5b-instruct": "available",
        "qwen2.5-coder-1.5b-instruct": "available",
    }
    assert models["gemma3-270m"].path == path
    assert models["gemma3-270m"].licence == "Gemma terms of use"
    assert models["gemma3-270m"].num_bytes > path.stat().st_size  # and its record
    assert models["smollm2-135m-instruct"].num_bytes == 1000
    assert [model.state for model in list_models(settings, with_catalog=False)].count("available") == 0


def test_an_empty_store_lists_the_catalog(tmp_path: Path) -> None:
    assert {model.state for model in list_models(StoreSettings(data_dir=tmp_path / "none"))} == {"available"}


def test_removal_takes_the_engines_along(tmp_path: Path) -> None:
    settings = StoreSettings(data_dir=tmp_path)
    path, other = add_entry(settings, "gemma3-270m"), add_entry(settings, "mine")
    gone = engine_dir_for(str(path), layout=8, settings=settings, tools=plain_tools())
    stays = engine_dir_for(str(other), layout=8, settings=settings, tools=plain_tools())
    assert by_name(settings)["gemma3-270m"].engine_bytes > 0
    removed = remove_model("Gemma-3-270m", settings)  # an alias, in any case
    assert (removed.name, removed.num_engines) == ("gemma3-270m", 1)
    assert removed.num_bytes > path.stat().st_size if path.exists() else removed.num_bytes > 0
    assert not path.exists() and not gone.path.exists()
    assert other.exists() and stays.path.exists()
    assert by_name(settings)["gemma3-270m"].state == "available"


def test_half_a_pull_can_be_removed(tmp_path: Path) -> None:
    settings = StoreSettings(data_dir=tmp_path)
    begun = settings.models_dir / ".partial" / "hf--ann--tiny"
    begun.mkdir(parents=True)
    (begun / "x").write_bytes(bytes(10))
    assert remove_model("hf:ann/tiny", settings).num_bytes == 10
    assert not begun.exists()


def test_nothing_of_that_name(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="not in the store"):
        remove_model("gemma3-270m", StoreSettings(data_dir=tmp_path))
