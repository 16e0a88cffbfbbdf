"""What a model file or engine directory holds, as data for whoever prints it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgewise.architectures import describe
from edgewise.build.convert import native_format
from edgewise.build.engine_dir import EngineDir, is_engine_dir, load_engine_dir
from edgewise.build.generation import tokenizer_kind
from edgewise.checkpoints import Checkpoint, open_checkpoint
from edgewise.checkpoints.gguf_types import BY_NAME
from edgewise.core.errors import ModelError
from edgewise.core.spec import AttentionSpec, DecoderSpec

KV_BLOCK_TOKENS = 32
KV_VALUE_BYTES = 2  # f16
LONG_ARRAY = 16  # longer arrays are shown by their length


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One line of the tensor table."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes a model takes at a context length, one sequence, without the engine's own buffers."""

    context_len: int
    weight_bytes: int
    kv_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes


@dataclass(frozen=True, slots=True)
class Inspection:
    """A model as it lies on the disk. `spec` is None and `unsupported` says why when the engine cannot run it."""

    path: Path
    kind: str  # "gguf" or "engine directory"
    name: str
    architecture: str
    file_bytes: int
    metadata: dict[str, Any]  # long arrays replaced by a note on their length
    tensors: list[TensorRow]
    formats: dict[str, int]  # storage type to number of tensors
    tokenizer: str
    has_template: bool
    spec: DecoderSpec | None = None
    unsupported: str | None = None
    memory: MemoryNeed | None = None
    conversions: dict[str, Any] = field(default_factory=dict)


def inspect_model(path: Path, *, context_len: int | None = None) -> Inspection:
    """Look into a checkpoint or an engine directory; `context_len` None means the model's own window.

    Raises CheckpointError or EngineDirError when it cannot even be read.
    """
    if is_engine_dir(path):
        return _inspect_engine(load_engine_dir(path), context_len)
    checkpoint = open_checkpoint(path)
    try:
        return _inspect_checkpoint(checkpoint, context_len)
    finally:
        checkpoint.close()


def kv_bytes(spec: DecoderSpec, context_len: int) -> int:
    """KV cache of one sequence: whole blocks of 32 tokens, f16, all attention layers."""
    tokens = -(-context_len // KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS
    per_token = sum(
        layer.mixer.num_kv_heads * (layer.mixer.head_dim + layer.mixer.value_dim)
        for layer in spec.layers
        if isinstance(layer.mixer, AttentionSpec)
    )
    return tokens * per_token * KV_VALUE_BYTES


def _memory(spec: DecoderSpec, weight_bytes: int, context_len: int | None) -> MemoryNeed:
    length = context_len or spec.max_positions
    return MemoryNeed(length, weight_bytes, kv_bytes(spec, length))


def _inspect_checkpoint(checkpoint: Checkpoint, context_len: int | None) -> Inspection:
    metadata, tensors = checkpoint.metadata, list(checkpoint.tensors.values())
    spec, unsupported, memory = None, None, None
    try:
        spec = describe(checkpoint).spec
        memory = _memory(spec, sum(_packed_bytes(t.dtype, t.shape) for t in tensors), context_len)
    except ModelError as error:
        unsupported = error.message
    return Inspection(
        path=checkpoint.path,
        kind="gguf",
        name=str(metadata.get("general.name", checkpoint.path.stem)),
        architecture=str(metadata.get("general.architecture", "unknown")),
        file_bytes=sum(file.stat().st_size for file in checkpoint.files),
        metadata={key: _shortened(value) for key, value in metadata.items()},
        tensors=[TensorRow(t.name, t.shape, t.dtype, t.nbytes) for t in tensors],
        formats=dict(Counter(t.dtype for t in tensors)),
        tokenizer=tokenizer_kind(metadata),
        has_template="tokenizer.chat_template" in metadata,
        spec=spec,
        unsupported=unsupported,
        memory=memory,
    )


def _packed_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor once built; padding is not counted. A type without a kernel counts as stored."""
    target = BY_NAME["F32" if len(shape) == 1 else native_format(dtype) or dtype]
    rows = 1
    for dim in shape[:-1]:
        rows *= dim
    return rows * target.row_bytes(shape[-1])


def _inspect_engine(engine_dir: EngineDir, context_len: int | None) -> Inspection:
    tensors = list(engine_dir.tensors.values())
    header = {"layout": engine_dir.layout, "fingerprint": engine_dir.fingerprint, **engine_dir.provenance}
    return Inspection(
        path=engine_dir.path,
        kind="engine directory",
        name=str(engine_dir.provenance["name"]),
        architecture=engine_dir.spec.architecture,
        file_bytes=engine_dir.file_bytes,
        metadata=header,
        tensors=[
            TensorRow(t.name, (t.rows, t.cols) if t.layout else (t.cols,), t.format, t.nbytes)
            for t in tensors
        ],
        formats=dict(Counter(t.format for t in tensors)),
        tokenizer=engine_dir.provenance.get("tokenizer", "unknown"),
        has_template=engine_dir.chat_template is not None,
        spec=engine_dir.spec,
        memory=_memory(engine_dir.spec, len(engine_dir.weights), context_len),
        conversions=engine_dir.conversions,
    )


def _shortened(value: Any) -> Any:
    if isinstance(value, list) and len(value) > LONG_ARRAY:
        return f"[{len(value)} values]"
    return value
