"""The kinds of upstream behind one Protocol: how each one's models, limits, version, APIs and fields are learned."""

from __future__ import annotations

from typing import assert_never

from edgewise.gateway.asking import Ask
from edgewise.gateway.kinds.edge_llm import EdgeLlm
from edgewise.gateway.kinds.edgewise import Edgewise
from edgewise.gateway.kinds.kind import Facts, UpstreamKind
from edgewise.gateway.kinds.llama import Llama
from edgewise.gateway.kinds.openai import OpenAi
from edgewise.gateway.kinds.vllm import Vllm
from edgewise.gateway.profile import Kind

__all__ = ["Facts", "UpstreamKind", "detect", "kind_of"]


def kind_of(kind: Kind) -> UpstreamKind:
    match kind:
        case Kind.EDGEWISE:
            return Edgewise()
        case Kind.LLAMA:
            return Llama()
        case Kind.EDGE_LLM:
            return EdgeLlm()
        case Kind.VLLM:
            return Vllm()
        case Kind.OPENAI:
            return OpenAi()
        case _:
            assert_never(kind)


_OWNERS = {
    "edgewise": Kind.EDGEWISE,
    "llamacpp": Kind.LLAMA,
    "tensorrt-edgellm": Kind.EDGE_LLM,
    "vllm": Kind.VLLM,
}
"""Who owns a model, by the word its list of models has for that."""


async def detect(ask: Ask) -> Kind:
    """Which kind an upstream is: by its list of models, and where that is empty by paths that only one kind has."""
    models = await ask.get_object("/v1/models")
    cards = models.get("data")
    owners = (
        {card.get("owned_by") for card in cards if isinstance(card, dict)}
        if isinstance(cards, list)
        else set()
    )
    for owner, kind in _OWNERS.items():
        if owner in owners:
            return kind
    props = await ask.get_object("/props")
    if "build_info" in props or props.get("role") == "router":
        return Kind.LLAMA
    health = await ask.get_object("/health")
    return Kind.EDGE_LLM if isinstance(health.get("capabilities"), dict) else Kind.OPENAI
