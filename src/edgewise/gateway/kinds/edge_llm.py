"""A TensorRT Edge-LLM server: one model, closed request bodies, and a longest prompt that is shorter than its window.

/v1/models has the window alone (the KV capacity); the longest prompt is in /health, under capabilities. /openapi.json has the allow-list.
Source: the server of TensorRT Edge-LLM 0.11.
"""

from __future__ import annotations

from edgewise.gateway.asking import Ask
from edgewise.gateway.kinds.kind import Facts, apis_of, fields_of, listed, size_of
from edgewise.gateway.profile import Api, Fault, Kind, ModelCard

CHAT_FIELDS = frozenset(
    {
        "add_generation_prompt",
        "apply_chat_template",
        "audio",
        "cache_generated_tokens",
        "chat_template_kwargs",
        "disable_spec_decode",
        "enable_thinking",
        "frequency_penalty",
        "guided_decoding",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "min_p",
        "modalities",
        "model",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "reasoning_effort",
        "repetition_penalty",
        "response_format",
        "reuse_context",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_k",
        "top_logprobs",
        "top_p",
    }
)
"""The allow-list of 0.11.0, for a server that does not show its own."""

_APIS = frozenset({Api.CHAT, Api.MESSAGES, Api.COUNT_TOKENS})


class EdgeLlm:
    kind = Kind.EDGE_LLM
    health_path = "/health"

    def presumed_faults(self, version: str) -> frozenset[Fault]:
        """Those of 0.11; no later version is known to have lost one."""
        return frozenset(
            {
                Fault.STRING_ARGUMENTS,
                Fault.LATE_SYSTEM,
                Fault.SEVERAL_SYSTEM,
                Fault.DEVELOPER_ROLE,
                Fault.UNKNOWN_FIELDS,
                Fault.MODEL_NAME,
                Fault.REQUIRED_CHOICE,
                Fault.NAMED_CHOICE,
                Fault.COUNT_TOKENS,
                Fault.SILENT_PREFILL,
            }
        )

    async def models(self, ask: Ask) -> tuple[ModelCard, ...] | None:
        entries = await listed(ask)
        if entries is None:
            return None
        capabilities = (await ask.get_object("/health")).get("capabilities")
        able = capabilities if isinstance(capabilities, dict) else {}
        cards = []
        for entry in entries:
            window = size_of(entry, "max_model_len") or size_of(able, "max_model_len")
            longest = size_of(able, "max_input_len") or window
            cards.append(ModelCard(entry["id"], (), True, window, longest, entry))
        return tuple(cards)

    async def facts(self, ask: Ask) -> Facts:
        capabilities = (await ask.get_object("/health")).get("capabilities")
        slots = (
            size_of(capabilities, "max_num_seqs", "max_batch_size")
            if isinstance(capabilities, dict)
            else None
        )
        schema = await ask.get_object("/openapi.json")
        info = schema.get("info")
        version = str(info.get("version") or "") if isinstance(info, dict) else ""
        fields = fields_of(schema)
        if Api.CHAT in fields:
            return Facts(version, apis_of(schema), fields, slots)
        warning = "it shows no allow-list in /openapi.json: requests are cut to the fields of 0.11.0"
        apis = apis_of(schema) or _APIS
        return Facts(version, apis, {**fields, Api.CHAT: CHAT_FIELDS}, slots, (warning,))
