"""llama-server, alone or as a router over several models.

A router lists every model it could load, each with a status; only "loaded" counts, since a request for any other makes it load or wake one.
For the same reason nothing is asked about a model that is not loaded, and every question says autoload=false.
Source: llama.cpp, tools/server/README.md.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from edgewise.gateway.asking import Ask
from edgewise.gateway.kinds.kind import Facts, listed, names_of, size_of
from edgewise.gateway.profile import Api, Fault, Kind, ModelCard

_ASKED = (Api.MESSAGES, Api.COUNT_TOKENS, Api.RESPONSES, Api.EMBEDDINGS)
"""Not in every version, or only behind a flag; the rest always is."""

_ALWAYS = frozenset({Api.CHAT, Api.COMPLETIONS})


class Llama:
    kind = Kind.LLAMA
    health_path = "/health"

    def presumed_faults(self, version: str) -> frozenset[Fault]:
        """Of llama.cpp b11549: events without sequence_number and output_index, and answers in text where a call was required."""
        return frozenset({Fault.RESPONSE_EVENTS, Fault.REQUIRED_CHOICE, Fault.NAMED_CHOICE})

    async def models(self, ask: Ask) -> tuple[ModelCard, ...] | None:
        entries = await listed(ask)
        if entries is None:
            return None
        return tuple([await self._card(ask, entry) for entry in entries])

    async def _card(self, ask: Ask, entry: dict[str, Any]) -> ModelCard:
        loaded = _is_loaded(entry)
        meta = entry.get("meta")
        window = size_of(meta, "n_ctx") if isinstance(meta, dict) else None
        if window is None and loaded:
            window = await _window(ask, entry)
        aliases = tuple(name for name in names_of(entry.get("aliases")) if name != entry["id"])
        return ModelCard(entry["id"], aliases, loaded, window, window, entry)

    async def facts(self, ask: Ask) -> Facts:
        props = await ask.get_object("/props")
        slots = None if props.get("role") == "router" else size_of(props, "total_slots")
        more = {api for api in _ASKED if await ask.offers(api.value)}
        return Facts(str(props.get("build_info") or ""), _ALWAYS | more, slots=slots)


def _is_loaded(entry: dict[str, Any]) -> bool:
    """A server of one model tells no status: it is loaded, or the server would not answer."""
    status = entry.get("status")
    return status is None or (isinstance(status, dict) and status.get("value") == "loaded")


async def _window(ask: Ask, entry: dict[str, Any]) -> int | None:
    """Of one slot, which is what a request has."""
    path = "/props" if "status" not in entry else f"/props?model={quote(entry['id'], safe='')}&autoload=false"
    settings = (await ask.get_object(path)).get("default_generation_settings")
    return size_of(settings, "n_ctx") if isinstance(settings, dict) else None
