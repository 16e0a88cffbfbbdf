"""Rules on single fields: what an upstream takes at all, the model's name, and values it refuses although the field is known."""

from __future__ import annotations

from typing import Any

from edgewise.gateway.kinds.edge_llm import CHAT_FIELDS
from edgewise.gateway.profile import Api, Fault, Kind, Profile
from edgewise.gateway.shaping.step import Body, Context, Step, objects, text_of, when, without

OPENAI_FIELDS = frozenset(
    [
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "model",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "response_format",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
    ]
)
"""What every server of OpenAI's chat API takes, for one that refuses others and has no list."""

_LIMITS = ("max_tokens", "max_completion_tokens")
_EDGE_LLM_DEFAULT = 2048
_CHARS_PER_TOKEN = 3  # fewer than text has on average: an estimate of a prompt should rather be too long
_TOKENS_PER_TURN = 16


def allowed_fields(profile: Profile, api: Api) -> frozenset[str] | None:
    """The only fields an upstream takes; None: any."""
    if (fields := profile.fields.get(api)) is not None:
        return fields
    if api is Api.CHAT and Fault.UNKNOWN_FIELDS in profile.faults:
        return CHAT_FIELDS if profile.kind is Kind.EDGE_LLM else OPENAI_FIELDS
    return None


def _name_model(body: Body, context: Context) -> Body:
    if not context.model or body.get("model") == context.model:
        return body
    return {**body, "model": context.model}


def _rename_limit(body: Body, context: Context) -> Body:
    """A limit under the name that is known; one where both are given, which some refuse when they differ."""
    allowed = allowed_fields(context.profile, context.api) or CHAT_FIELDS
    if body.get("max_completion_tokens") is None:
        return body
    if "max_completion_tokens" not in allowed:
        return {**without(body, "max_completion_tokens"), "max_tokens": body["max_completion_tokens"]}
    return body if body.get("max_tokens") == body["max_completion_tokens"] else without(body, "max_tokens")


def _filter(body: Body, context: Context) -> Body:
    allowed = allowed_fields(context.profile, context.api)
    assert allowed is not None
    unknown = [name for name in body if name not in allowed]
    context.dropped += [name for name in unknown if body[name] is not None]
    return without(body, *unknown)


def _room(body: Body, context: Context) -> int | None:
    """The tokens left beside the prompt, whose length is estimated from its characters; None where the window is not known."""
    cards = context.profile.models
    window = next((card.window for card in cards if context.model in (card.id, *card.aliases)), None)
    if window is None and len(cards) == 1:
        window = cards[0].window
    return None if window is None else max(1, window - estimated_tokens(body))


def _clamp(body: Body, context: Context) -> Body:
    """A limit that fits the window beside the prompt."""
    if (room := _room(body, context)) is None:
        return body
    over = [name for name in _LIMITS if _is_over(body.get(name), room)]
    return {**body, **dict.fromkeys(over, room)} if over else body


def _state_limit(body: Body, context: Context) -> Body:
    """Edge-LLM cuts answers at 2,048 tokens where no limit is given; without one, clients expect whatever room there is."""
    if any(body.get(name) is not None for name in _LIMITS) or (room := _room(body, context)) is None:
        return body
    return {**body, "max_tokens": room} if room > _EDGE_LLM_DEFAULT else body


def _is_over(limit: Any, room: int) -> bool:
    return isinstance(limit, int) and limit > room


def estimated_tokens(body: Body) -> int:
    """About how many tokens a body's prompt has."""
    messages = objects(body.get("messages"))
    chars = len(text_of(body.get("system"))) + len(str(body.get("tools") or ""))
    for message in messages:
        content = message.get("content")
        chars += len(content) if isinstance(content, str) else len(text_of(content))
        chars += len(str(message.get("tool_calls") or ""))
    return chars // _CHARS_PER_TOKEN + _TOKENS_PER_TURN * len(messages)


def _is_edge_llm(profile: Profile, api: Api) -> bool:
    return api is Api.CHAT and profile.kind is Kind.EDGE_LLM


_PENALTIES = ("frequency_penalty", "presence_penalty")
_TEMPLATE_KWARGS = ("enable_thinking", "reasoning_effort")


def _leave_out_refused(body: Body, context: Context) -> Body:
    """Values that Edge-LLM's schema takes and its checks refuse. Penalties cost a request there; without them it is answered."""
    refused = [name for name in _PENALTIES if body.get(name)]
    context.dropped += refused
    nulls = [name for name, value in body.items() if value is None]
    body = without(body, *refused, *nulls)
    if not body.get("tools"):
        body = without(body, "tools", "tool_choice", "parallel_tool_calls")
    body = _only(body, context, "stream_options", ("include_usage",))
    return _only(body, context, "chat_template_kwargs", _TEMPLATE_KWARGS)


def _only(body: Body, context: Context, name: str, known: tuple[str, ...]) -> Body:
    """An object's known keys."""
    value = body.get(name)
    if not isinstance(value, dict) or all(key in known for key in value):
        return body
    context.dropped += [f"{name}.{key}" for key in value if key not in known]
    return {**body, name: {key: each for key, each in value.items() if key in known}}


def _is_refusing_both_limits(profile: Profile, api: Api) -> bool:
    allowed = allowed_fields(profile, api)
    lacks = allowed is not None and "max_completion_tokens" not in allowed
    return api is Api.CHAT and (lacks or profile.kind is Kind.EDGE_LLM)


FIELD_STEPS = (
    Step("model-name", lambda profile, api: True, _name_model),
    Step("one-limit", _is_refusing_both_limits, _rename_limit),
    Step("limit-stated", _is_edge_llm, _state_limit),
    Step("refused-values", _is_edge_llm, _leave_out_refused),
    Step("unknown-fields", lambda profile, api: allowed_fields(profile, api) is not None, _filter),
    Step("limit-clamped", when(Fault.MAX_TOKENS, apis=(Api.CHAT, Api.MESSAGES)), _clamp),
)
