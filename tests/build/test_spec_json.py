"""The DecoderSpec survives JSON, and anything odd in it is an error that names the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgewise.architectures import describe
from edgewise.build.spec_json import spec_from_json, spec_to_json
from edgewise.checkpoints import open_checkpoint
from edgewise.core.spec import DecoderSpec
from tests.support.tiny_gguf import ARCHITECTURES, write_tiny_gguf


def tiny_spec(tmp_path: Path, name: str = "llama") -> DecoderSpec:
    path = write_tiny_gguf(tmp_path / "t.gguf", architecture=name, num_layers=7, longrope=name == "phi3")
    return describe(open_checkpoint(path)).spec


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_round_trip(name: str, tmp_path: Path) -> None:
    spec = tiny_spec(tmp_path, name)
    data = json.loads(json.dumps(spec_to_json(spec)))
    assert spec_from_json(data) == spec
    assert len(data["layer_kinds"]) == (2 if name == "gemma3" else 1)  # equal layers are written once


def broken(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(data))
    place = copy
    *parents, last = path.split("/")
    for part in parents:
        place = place[int(part) if part.isdigit() else part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("norm_eps", None, "missing field 'norm_eps'"),
        ("flux", 1, "unknown field 'flux'"),
        ("vocab_size", "many", "spec.vocab_size: expected int, got str"),
        ("vocab_size", True, "spec.vocab_size: expected int, got bool"),
        ("norm", "batch", "spec.norm: unknown value 'batch'"),
        ("layers", [9], "layers: must be indices"),
        ("layer_kinds/0/mixer/type", "magic", "mixer: unknown type"),
        ("layer_kinds/0/mixer/rope/theta", None, "missing field 'theta'"),
        ("layer_kinds/0/mlp/hidden_dim", 1.5, "hidden_dim: expected int, got float"),
        ("layer_kinds/0/mixer/rope/freq_factors", 3, "freq_factors: expected list"),
    ],
)
def test_odd_fields_are_named(path: str, value: Any, message: str, tmp_path: Path) -> None:
    data = spec_to_json(tiny_spec(tmp_path))
    with pytest.raises(ValueError, match=message):
        spec_from_json(broken(data, path, value))
