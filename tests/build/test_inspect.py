"""Looking into model files and engine directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewise.build import build_engine_dir, inspect_model
from edgewise.core.errors import CheckpointError
from tests.build.plain_packer import plain_tools
from tests.support.tiny_gguf import vocabulary, write_tiny_gguf


def test_a_model_file(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", dtype="Q8_0")
    found = inspect_model(path, context_len=100)
    assert (found.kind, found.architecture, found.name) == ("gguf", "llama", "Tiny llama")
    assert found.tokenizer == f"gpt2 (gpt-2), {len(vocabulary())} tokens"
    assert found.has_template
    assert found.metadata["tokenizer.ggml.tokens"] == f"[{len(vocabulary())} values]"
    assert found.metadata["llama.block_count"] == 2
    assert found.formats == {"Q8_0": 15, "F32": 5}
    assert found.memory is not None
    # 2 layers, 2 KV heads of 16 keys and 16 values in f16, for 128 tokens (four blocks of 32)
    assert found.memory.kv_bytes == 128 * 2 * 2 * 32 * 2
    assert found.memory.weight_bytes == sum(row.num_bytes for row in found.tensors)


def test_a_type_that_grows_is_counted_as_built(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", dtype="IQ4_NL")
    found = inspect_model(path)
    engine = build_engine_dir(path, tmp_path / "engine", layout=4, tools=plain_tools())
    assert found.memory is not None
    padding = sum(4 * 34 * (t.cols // 32) + 64 for t in engine.tensors.values())
    assert 0 <= len(engine.weights) - found.memory.weight_bytes <= padding


def test_an_engine_directory(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", dtype="Q3_K", embed_dim=256, hidden_dim=256, head_dim=64)
    engine = build_engine_dir(path, tmp_path / "engine", layout=8, tools=plain_tools())
    found = inspect_model(engine.path)
    assert (found.kind, found.architecture) == ("engine directory", "llama")
    assert found.tokenizer == inspect_model(path).tokenizer
    assert found.formats == {"Q6_K": 15, "F32": 5}
    assert len(found.conversions) == 15
    assert found.memory is not None and found.memory.context_len == 512
    assert {row.name: row.shape for row in found.tensors}["embed.weight"] == (len(vocabulary()), 256)


def test_a_model_the_engine_cannot_run_is_still_shown(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", extra_keys={"llama.expert_count": 8})
    found = inspect_model(path)
    assert found.spec is None and found.memory is None
    assert "llama.expert_count" in (found.unsupported or "")
    assert len(found.tensors) == 20


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "odd.gguf").write_bytes(b"GGUF")
    with pytest.raises(CheckpointError):
        inspect_model(tmp_path / "odd.gguf")
