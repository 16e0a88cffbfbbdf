"""A vLLM server: its OpenAPI document says which APIs this version has; unknown fields are taken and ignored."""

from __future__ import annotations

from edgewise.gateway.asking import Ask
from edgewise.gateway.kinds.kind import Facts, apis_of, fields_of, listed, size_of
from edgewise.gateway.profile import Api, Fault, Kind, ModelCard

_ALWAYS = frozenset({Api.CHAT, Api.COMPLETIONS})


class Vllm:
    kind = Kind.VLLM
    health_path = "/health"

    def presumed_faults(self, version: str) -> frozenset[Fault]:
        return frozenset()

    async def models(self, ask: Ask) -> tuple[ModelCard, ...] | None:
        """Every served name is an entry of its own, adapters too; each is asked for by that name."""
        entries = await listed(ask)
        if entries is None:
            return None
        windows = [(entry, size_of(entry, "max_model_len")) for entry in entries]
        return tuple(ModelCard(e["id"], window=window, max_input=window, raw=e) for e, window in windows)

    async def facts(self, ask: Ask) -> Facts:
        version = str((await ask.get_object("/version")).get("version") or "")
        schema = await ask.get_object("/openapi.json")
        if not schema:
            return Facts(
                version,
                _ALWAYS,
                warnings=("it shows no /openapi.json: only OpenAI's chat and completions are used",),
            )
        return Facts(version, apis_of(schema) or _ALWAYS, fields_of(schema))
