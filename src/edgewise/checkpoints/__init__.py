"""What the world publishes: GGUF files today, found locally, on the Hugging Face hub or in wheels of a package index."""

from edgewise.checkpoints.checkpoint import Checkpoint, TensorInfo
from edgewise.checkpoints.open import open_checkpoint
from edgewise.checkpoints.source import resolve_source

__all__ = ["Checkpoint", "TensorInfo", "open_checkpoint", "resolve_source"]
