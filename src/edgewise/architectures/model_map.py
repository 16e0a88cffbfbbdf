"""The result of describing a checkpoint: its DecoderSpec, and which stored tensor becomes which canonical one."""

from __future__ import annotations

from dataclasses import dataclass

from edgewise.core.spec import DecoderSpec


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """Where a canonical tensor comes from: `name` in the checkpoint, some of its rows, a constant added to its values."""

    name: str
    rows: slice | None = None  # None: all
    add: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelMap:
    """A described checkpoint. `tensors` maps canonical names (see core/spec.py) to their sources."""

    spec: DecoderSpec
    tensors: dict[str, SourceTensor]
