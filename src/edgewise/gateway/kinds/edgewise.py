"""Another Edgewise: it has every API, takes any field and says its limits in /v1/models."""

from __future__ import annotations

from edgewise.gateway.asking import Ask
from edgewise.gateway.kinds.kind import Facts, listed, size_of
from edgewise.gateway.profile import Api, Fault, Kind, ModelCard


class Edgewise:
    kind = Kind.EDGEWISE
    health_path = "/health"

    def presumed_faults(self, version: str) -> frozenset[Fault]:
        return frozenset()

    async def models(self, ask: Ask) -> tuple[ModelCard, ...] | None:
        """One card a model: entries whose `root` is another's id are that one's aliases."""
        entries = await listed(ask)
        if entries is None:
            return None
        names: dict[str, list[str]] = {}
        for entry in entries:
            root = entry.get("root")
            names.setdefault(root if isinstance(root, str) and root else entry["id"], []).append(entry["id"])
        cards = []
        for entry in entries:
            if entry["id"] in names:
                aliases = tuple(name for name in names[entry["id"]] if name != entry["id"])
                window, longest = size_of(entry, "max_model_len"), size_of(entry, "max_input_len")
                cards.append(ModelCard(entry["id"], aliases, True, window, longest or window, entry))
        return tuple(cards)

    async def facts(self, ask: Ask) -> Facts:
        version = (await ask.get_object("/version")).get("version")
        return Facts(str(version or ""), apis=frozenset(Api))
