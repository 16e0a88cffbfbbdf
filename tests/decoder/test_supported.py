"""What the decoder does not run is refused by name, before memory is taken for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgewise.architectures import describe
from edgewise.checkpoints import open_checkpoint
from edgewise.core.errors import UnsupportedModelError
from edgewise.core.spec import AttentionSpec, DecoderSpec
from edgewise.decoder.compile import check_supported
from tests.support.tiny_gguf import write_tiny_gguf


@pytest.fixture
def spec(tmp_path: Path) -> DecoderSpec:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    return describe(open_checkpoint(path)).spec


def test_a_model_that_runs_passes(spec: DecoderSpec):
    check_supported(spec)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"head_dim": 12}, "multiples of 8"),
        ({"value_dim": 20}, "multiples of 8"),
        ({"num_kv_heads": 3, "num_heads": 4}, "kv heads"),
    ],
)
def test_a_head_of_another_shape_is_named(spec: DecoderSpec, changes: dict[str, int], said: str):
    layer = spec.layers[-1]
    assert isinstance(layer.mixer, AttentionSpec)
    odd = replace(layer, mixer=replace(layer.mixer, **changes))
    number = len(spec.layers) - 1
    with pytest.raises(UnsupportedModelError, match=f"layer {number}: .*{said}"):
        check_supported(replace(spec, layers=(*spec.layers[:-1], odd)))
