"""Published models through the real packer and tokenizer: what is built holds the file's own values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgewise.architectures import describe
from edgewise.build import build_engine_dir, inspect_model, open_engine_dir, verify_weights
from edgewise.build.packing import PLAIN, default_tools
from edgewise.checkpoints import open_checkpoint
from edgewise.checkpoints.dequantize import dequantize
from edgewise.checkpoints.settings import StoreSettings
from tests.support.models import CODER_05B, SMOLLM2, model_path

pytestmark = pytest.mark.model


@pytest.mark.parametrize("name", [SMOLLM2, CODER_05B])
def test_build_and_repack(name: str, tmp_path: Path) -> None:
    pytest.importorskip("edgewise._native")
    path, packer = model_path(name), default_tools().packer
    engine = build_engine_dir(path, tmp_path / "engine", layout=8)
    wide = open_engine_dir(engine.path, layout=16, settings=StoreSettings(data_dir=tmp_path / "data"))
    verify_weights(wide)
    checkpoint = open_checkpoint(path)
    for canonical, source in list(describe(checkpoint).tensors.items())[::11]:
        expected = np.atleast_2d(checkpoint.dequantize(source.name))
        for built in (engine, wide):
            tensor = built.tensors[canonical]
            data = built.weights[tensor.offset : tensor.offset + tensor.nbytes]
            if tensor.layout == PLAIN:
                assert np.array_equal(data.view(np.float32), expected[0])
                continue
            rows = packer.unpack(tensor.format, tensor.layout, tensor.rows, tensor.cols, data)
            assert np.array_equal(dequantize(rows, tensor.format).reshape(expected.shape), expected), (
                canonical
            )
    assert inspect_model(engine.path).tokenizer == inspect_model(path).tokenizer
    assert engine.chat_template
    assert engine.generation_config["eos_token_id"]
