"""One small file a family: GGUF keys and tensor names to the one DecoderSpec. Data, no arithmetic."""

from __future__ import annotations

from edgewise.architectures import gemma3, llama, mistral, phi3, qwen2, qwen3
from edgewise.architectures.family import Family, describe_family
from edgewise.architectures.model_map import ModelMap, SourceTensor
from edgewise.checkpoints import Checkpoint
from edgewise.core.errors import CheckpointError, UnsupportedModelError

__all__ = ["FAMILIES", "ModelMap", "SourceTensor", "describe"]

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY for module in (llama, mistral, qwen2, qwen3, gemma3, phi3)
}


def describe(checkpoint: Checkpoint) -> ModelMap:
    """The decoder a checkpoint means, and where its tensors lie.

    Raises UnsupportedModelError naming what is lacking, CheckpointError for missing or contradictory keys and tensors.
    """
    kind = checkpoint.metadata.get("general.type", "model")
    if kind != "model":
        raise UnsupportedModelError(
            f"{checkpoint.path}: metadata key 'general.type': a file of type {kind!r} is not a model by itself"
        )
    name = checkpoint.metadata.get("general.architecture")
    if not isinstance(name, str):
        raise CheckpointError(f"{checkpoint.path}: metadata key 'general.architecture': is missing")
    family = FAMILIES.get(name)
    if family is None:
        raise UnsupportedModelError(
            f"{checkpoint.path}: metadata key 'general.architecture': {name!r} is not supported",
            hint=f"supported: {', '.join(sorted(FAMILIES))}",
        )
    return describe_family(checkpoint, family)
