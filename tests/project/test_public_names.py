"""What `import edgewise` offers."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

import edgewise
from edgewise.core import errors

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [name for name in edgewise.__all__ if name != "__version__"])
def test_every_public_name_resolves_to_its_home(name: str):
    value = getattr(edgewise, name)
    assert value is getattr(importlib.import_module(edgewise._HOMES[name]), name)
    assert name in dir(edgewise)


def test_the_names_people_rely_on_are_public():
    assert {"LLM", "AsyncLLM", "SamplingParams", "RequestOutput", "CompletionOutput", "StreamDelta"} <= set(
        edgewise.__all__
    )


def test_every_error_is_public():
    tree = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.EdgewiseError)
    }
    assert tree <= set(edgewise.__all__)


def test_names_for_type_checkers_are_the_names_at_run_time():
    source = (ROOT / "src" / "edgewise" / "__init__.py").read_text()
    for name, home in edgewise._HOMES.items():
        assert f"from {home} import {name} as {name}\n" in source


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'LLMM'"):
        _ = edgewise.LLMM


def test_the_version_is_the_projects():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert edgewise.__version__ == project["version"]
