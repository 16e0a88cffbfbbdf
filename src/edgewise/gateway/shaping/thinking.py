"""Thinking under each upstream's own switch, with the one meaning it has here: off unless a request asks for it, in whichever words."""

from __future__ import annotations

from typing import Any, assert_never

from edgewise.core.chat import ReasoningOptions
from edgewise.gateway.profile import Api, Fault, Kind, Profile
from edgewise.gateway.shaping.fields import allowed_fields
from edgewise.gateway.shaping.step import Body, Context, Step, without
from edgewise.protocols.fields import Fields
from edgewise.protocols.reasoning_fields import read_reasoning

_BUDGETS = ("thinking_token_budget", "thinking_budget", "reasoning_budget", "thinking_budget_tokens")
_FOREIGN = ("thinking", "reasoning", *_BUDGETS)
"""Other servers' words for it, which say nothing more once they are translated."""


def _is_on(options: ReasoningOptions) -> bool:
    return options.enabled is True


def _with_kwargs(body: Body, **values: Any) -> Body:
    """Template variables beside those that are there; the body itself where they say the same already."""
    kwargs = body.get("chat_template_kwargs")
    kwargs = kwargs if isinstance(kwargs, dict) else {}
    if all(name in kwargs and kwargs[name] == value for name, value in values.items()):
        return body
    return {**body, "chat_template_kwargs": {**kwargs, **values}}


def _in_template(body: Body, options: ReasoningOptions) -> Body:
    """For servers whose templates think unless told not to; templates differ in the switch's name."""
    values: dict[str, Any] = {"enable_thinking": _is_on(options), "thinking": _is_on(options)}
    if _is_on(options) and options.effort is not None:
        values["reasoning_effort"] = options.effort
    return _with_kwargs(body, **values)


def _on_edge_llm(body: Body, options: ReasoningOptions, *, default: bool) -> Body:
    """On by `default` or not; the template's variables win over the fields, so where they are given they are what is read."""
    kwargs = body.get("chat_template_kwargs")
    if isinstance(kwargs, dict) and "enable_thinking" in kwargs:
        return body
    if body.get("enable_thinking", default) == _is_on(options):
        return body
    body = {**body, "enable_thinking": _is_on(options)}
    if _is_on(options) and options.effort is not None:
        body["reasoning_effort"] = options.effort
    return body


def _by_effort(body: Body, options: ReasoningOptions) -> Body:
    """OpenAI's own word, and only where it was asked for: a model that cannot think refuses it."""
    if not _is_on(options) or body.get("reasoning_effort") is not None:
        return body
    return {**body, "reasoning_effort": options.effort or "medium"}


def _switch_chat(body: Body, context: Context) -> Body:
    """Nothing where the upstream takes none of the fields that would say it."""
    changed = _switched(body, context, read_reasoning(Fields.of(body, "")))
    allowed = allowed_fields(context.profile, context.api)
    written = {name for name, value in changed.items() if body.get(name) != value}
    return changed if allowed is None or written <= allowed else body


def _thinks_unasked(context: Context) -> bool:
    return Fault.THINKING_SWITCH in context.profile.faults


def _switched(body: Body, context: Context, options: ReasoningOptions) -> Body:
    match context.profile.kind:
        case Kind.LLAMA | Kind.VLLM:
            return _in_template(body, options)
        case Kind.EDGE_LLM:
            context.dropped += [name for name in _BUDGETS if body.get(name) is not None]
            return without(_on_edge_llm(body, options, default=_thinks_unasked(context)), *_FOREIGN)
        case Kind.OPENAI:
            return _in_template(body, options) if _thinks_unasked(context) else _by_effort(body, options)
        case Kind.EDGEWISE:
            return body
        case kind:
            assert_never(kind)


def _switch_messages(body: Body, context: Context) -> Body:
    """Anthropic's field is not read by llama-server and vLLM, and half of it by Edge-LLM."""
    thinking = body.get("thinking")
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    match context.profile.kind:
        case Kind.LLAMA | Kind.VLLM:
            return _messages_template(body, kind)
        case Kind.EDGE_LLM:
            return {**body, "thinking": {"type": "enabled"}} if kind == "adaptive" else body
        case Kind.OPENAI:
            return _messages_template(body, kind) if _thinks_unasked(context) else body
        case Kind.EDGEWISE:
            return body
        case other:
            assert_never(other)


def _messages_template(body: Body, kind: Any) -> Body:
    kwargs = body.get("chat_template_kwargs")
    if isinstance(kwargs, dict) and "enable_thinking" in kwargs:
        return body
    is_on = kind in ("enabled", "adaptive")
    return _with_kwargs(body, enable_thinking=is_on, thinking=is_on)


def _is_switched(*apis: Api) -> Any:
    def wanted(profile: Profile, api: Api) -> bool:
        return api in apis and profile.kind is not Kind.EDGEWISE

    return wanted


THINKING_STEPS = (
    Step("thinking", _is_switched(Api.CHAT), _switch_chat),
    Step("thinking", _is_switched(Api.MESSAGES, Api.COUNT_TOKENS), _switch_messages),
)
