"""Any other server with OpenAI's API. What it has beyond chat is found out by asking for nothing."""

from __future__ import annotations

from edgewise.gateway.asking import Ask
from edgewise.gateway.kinds.kind import Facts, fields_of, listed, names_of, size_of
from edgewise.gateway.profile import Api, Fault, Kind, ModelCard

_WINDOW_NAMES = ("max_model_len", "context_length", "context_window", "max_context_length")


class OpenAi:
    kind = Kind.OPENAI
    health_path = "/v1/models"

    def presumed_faults(self, version: str) -> frozenset[Fault]:
        return frozenset()

    async def models(self, ask: Ask) -> tuple[ModelCard, ...] | None:
        entries = await listed(ask)
        if entries is None:
            return None
        cards = []
        for entry in entries:
            window = size_of(entry, *_WINDOW_NAMES)
            longest = size_of(entry, "max_input_len", "max_input_tokens") or window
            cards.append(ModelCard(entry["id"], names_of(entry.get("aliases")), True, window, longest, entry))
        return tuple(cards)

    async def facts(self, ask: Ask) -> Facts:
        schema = await ask.get_object("/openapi.json")
        info = schema.get("info")
        version = str(info.get("version") or "") if isinstance(info, dict) else ""
        asked = [api for api in Api if api is not Api.CHAT]
        apis = {api for api in asked if await ask.offers(api.value)}
        return Facts(version, frozenset({Api.CHAT, *apis}), fields_of(schema))
