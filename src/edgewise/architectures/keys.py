"""Typed access to the GGUF keys of an architecture, with errors that name the file and the key."""

from __future__ import annotations

import math
from typing import Any

from edgewise.checkpoints import Checkpoint
from edgewise.core.errors import CheckpointError, UnsupportedModelError


class Keys:
    """The metadata under `prefix.`: sizes are positive integers, factors finite numbers."""

    def __init__(self, checkpoint: Checkpoint, prefix: str) -> None:
        self._metadata = checkpoint.metadata
        self._path = checkpoint.path
        self.prefix = prefix

    def __contains__(self, name: str) -> bool:
        return f"{self.prefix}.{name}" in self._metadata

    def get(self, name: str, default: Any = None) -> Any:
        """The value as stored."""
        return self._metadata.get(f"{self.prefix}.{name}", default)

    def bad(self, name: str, problem: str) -> CheckpointError:
        """An error that names the key; for the caller to raise."""
        return CheckpointError(f"{self._path}: metadata key '{self.prefix}.{name}': {problem}")

    def unsupported(self, name: str, problem: str) -> UnsupportedModelError:
        """The same for a well-formed value that needs something this version lacks."""
        return UnsupportedModelError(f"{self._path}: metadata key '{self.prefix}.{name}': {problem}")

    def size(self, name: str, default: int | None = None) -> int:
        """A positive integer."""
        return self._size(name, self.get(name, default))

    def layer_size(self, name: str, layer: int, default: int | None = None) -> int:
        """A positive integer that may be given once, or per layer as an array."""
        value = self.get(name, default)
        if isinstance(value, list):
            if layer >= len(value):
                raise self.bad(name, f"has {len(value)} values, none for layer {layer}")
            value = value[layer]
        return self._size(name, value)

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number."""
        value = self.get(name, default)
        if value is None:
            raise self.bad(name, "is missing")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.bad(name, f"must be a finite number, got {value!r}")
        return float(value)

    def positive(self, name: str, default: float | None = None) -> float:
        """A finite number above zero."""
        value = self.number(name, default)
        if value <= 0:
            raise self.bad(name, f"must be above zero, got {value!r}")
        return value

    def _size(self, name: str, value: Any) -> int:
        if value is None:
            raise self.bad(name, "is missing")
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
            raise self.bad(name, f"must be a positive integer, got {value!r}")
        return value
