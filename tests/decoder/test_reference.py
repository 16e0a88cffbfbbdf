"""The native decoder beside the NumPy definition, over tiny models of every family."""

from pathlib import Path

import numpy as np
import pytest

from edgewise.architectures import FAMILIES, describe
from edgewise.build import build_engine_dir
from edgewise.checkpoints import open_checkpoint
from edgewise.decoder.batch import Batch
from edgewise.decoder.decoder import Decoder, DecoderConfig
from edgewise.decoder.reference import ReferenceDecoder
from edgewise.kernels.native import layout_of
from tests.support.tiny_gguf import write_tiny_gguf

LENGTH = 40


def tiny_outputs(
    path: Path, out: Path, ids: np.ndarray, window: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Logits [T, V] and hidden states [T, E] of the native decoder, all rows in one step."""
    engine_dir = build_engine_dir(path, out, layout=layout_of("auto"))
    config = DecoderConfig(num_blocks=4, max_rows=64, max_outputs=64, threads=2, max_model_len=window)
    decoder = Decoder(engine_dir, config)
    try:
        rows = np.arange(len(ids), dtype=np.int32)
        batch = Batch(
            token_ids=ids, positions=rows, row_starts=np.array([0, len(ids)], np.int32),
            context_lens=np.zeros(1, np.int32), block_tables=np.arange(4, dtype=np.int32).reshape(1, 4), output_rows=rows,
            hidden_rows=rows,
        )  # fmt: skip
        output = decoder.step(batch)
        assert output.hidden is not None
        return output.logits.copy(), output.hidden
    finally:
        decoder.close()


def compare(path: Path, out: Path, window: int | None = None) -> None:
    """Hold the native decoder against the definition, both serving sequences of up to `window` tokens.

    The definition rounds keys and values to float16 as the native cache does; a value that the one's sums put just below the
    middle between two neighbours, and the other's just above, is all that sets them apart.
    """
    checkpoint = open_checkpoint(path)
    model = describe(checkpoint)

    def tensor(name: str) -> np.ndarray:
        source = model.tensors[name]
        values = checkpoint.dequantize(source.name)
        values = values if source.rows is None else values[source.rows]
        return values + source.add

    ids = np.random.default_rng(3).integers(0, model.spec.vocab_size, LENGTH).astype(np.int32)
    reference = ReferenceDecoder(model.spec, tensor, np.float64, window=window, kv_dtype=np.float16)
    outputs = tiny_outputs(path, out, ids, window)
    for got, expected in zip(outputs, (reference.logits(ids), reference.hidden(ids)), strict=True):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(got, expected, atol=5e-4 * scale)
        assert np.corrcoef(got.ravel(), expected.ravel())[0, 1] > 0.9999


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_native_outputs_equal_the_definition(family: str, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", architecture=family, dtype="F32")
    compare(path, tmp_path / "engine")


@pytest.mark.parametrize("window", [None, 128])
def test_both_lists_of_longrope_equal_the_definition(window: int | None, tmp_path: Path) -> None:
    """The original window is 128 tokens, the model's own 512: one has the short factors, the other the long ones."""
    path = write_tiny_gguf(tmp_path / "tiny.gguf", architecture="phi3", dtype="F32", longrope=True)
    compare(path, tmp_path / "engine", window)
