"""The kinds of upstream behind one Protocol: how each one's models, limits, version, APIs and fields are learned."""

from __future__ import annotations

from typing import Any, assert_never

from edgewise.gateway.asking import ABSENT, Ask, object_of
from edgewise.gateway.kinds.edge_llm import EdgeLlm
from edgewise.gateway.kinds.edgewise import Edgewise
from edgewise.gateway.kinds.kind import Facts, UpstreamKind
from edgewise.gateway.kinds.llama import Llama
from edgewise.gateway.kinds.openai import OpenAi
from edgewise.gateway.kinds.vllm import Vllm
from edgewise.gateway.parts import BrokenReplyError
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


_NOT_READY = (429, 500, 502, 503, 504)

_OWNERS = {
    "edgewise": Kind.EDGEWISE,
    "llamacpp": Kind.LLAMA,
    "tensorrt-edgellm": Kind.EDGE_LLM,
    "vllm": Kind.VLLM,
}
"""Who owns a model, by the word its list of models has for that."""


async def detect(ask: Ask) -> tuple[Kind, bool]:
    """Which kind an upstream is, by its list of models and by paths that only one kind has; and whether its answers say so.

    They do not where it refuses them or says something else: then the kind is only what it may be taken for meanwhile. Raises
    BrokenReplyError while it is not ready: a server that still loads its model answers 503.
    """
    status, models = await _told(ask, "/v1/models")
    cards = models.get("data")
    owners = (
        {card.get("owned_by") for card in cards if isinstance(card, dict)}
        if isinstance(cards, list)
        else set()
    )
    for owner, kind in _OWNERS.items():
        if owner in owners:
            return kind, True
    _, props = await _told(ask, "/props")
    if "build_info" in props or props.get("role") == "router":
        return Kind.LLAMA, True
    _, health = await _told(ask, "/health")
    if isinstance(health.get("capabilities"), dict):
        return Kind.EDGE_LLM, True
    return Kind.OPENAI, isinstance(cards, list) or status in ABSENT


async def _told(ask: Ask, path: str) -> tuple[int, dict[str, Any]]:
    """The status of a path and the object it answers, empty for any other answer. Raises BrokenReplyError for a server that is not ready."""
    status, body = await ask.send("GET", path)
    if status in _NOT_READY:
        raise BrokenReplyError(f"{path} answers {status}")
    return status, (object_of(body) or {}) if status == 200 else {}
