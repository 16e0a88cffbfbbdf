"""How a request asks for thinking, and how it sends back what was thought: every spelling, one meaning.

Thinking is off unless asked for. The first switch that is given decides, the most specific first:
`chat_template_kwargs.enable_thinking` or `.thinking`, `enable_thinking`, `thinking.type`, `reasoning.enabled`, then an effort ("none"
is off, any other is on), then a budget (0 is off, more is on).
"""

from __future__ import annotations

from typing import Any

from edgewise.core.chat import ReasoningOptions
from edgewise.protocols.fields import Fields

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_UNLIMITED = -1
_BUDGETS = ("thinking_token_budget", "thinking_budget", "reasoning_budget", "thinking_budget_tokens")
"""vLLM's name, DashScope's, and llama.cpp's two."""
_NAMES = frozenset(
    (
        "chat_template_kwargs",
        "thinking",
        "reasoning",
        "reasoning_effort",
        "enable_thinking",
        "include_reasoning",
        *_BUDGETS,
    )
)
"""Every field that is looked at: most requests have none of them."""
_TYPES: dict[str, bool | None] = {"enabled": True, "adaptive": True, "disabled": False, "auto": None}


def read_reasoning(fields: Fields) -> ReasoningOptions:
    """What a request of any OpenAI-shaped API wants of thinking. Raises InvalidRequestError."""
    if _NAMES.isdisjoint(fields.data):
        return ReasoningOptions()
    kwargs = fields.object("chat_template_kwargs") or Fields({})
    thinking = _thinking(fields)
    reasoning = fields.object("reasoning") or Fields({})
    effort = _first(
        kwargs.string("reasoning_effort"),  # the template's own words, whichever they are
        _effort(fields, "reasoning_effort"),
        _effort(reasoning, "effort"),
    )
    budget = _first(
        *(_budget(fields, name) for name in _BUDGETS),
        _budget(kwargs, "thinking_budget"),
        _budget(thinking, "budget_tokens"),
        *(_budget(reasoning, name) for name in ("max_tokens", "budget_tokens", "budget")),
    )
    switch = _first(
        _switch(kwargs, "enable_thinking"),
        _switch(kwargs, "thinking"),
        _switch(fields, "enable_thinking"),
        _type(thinking),
        _switch(reasoning, "enabled"),
    )
    return reasoning_options(switch, effort, budget, show=_shows(fields, reasoning))


def reasoning_options(
    switch: bool | None, effort: str | None, budget: int | None, *, show: bool = True
) -> ReasoningOptions:
    """One meaning of the three ways to ask. `budget`: tokens; negative is without limit, None not given."""
    enabled = switch
    if enabled is None and effort is not None:
        enabled = effort != "none"
    if enabled is None and budget is not None:
        enabled = budget != 0
    if enabled and effort == "none":
        effort = None
    if budget is not None and budget < 0:
        budget = None
    return ReasoningOptions(enabled=enabled, effort=effort, budget_tokens=budget, show=show)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _effort(fields: Fields, key: str) -> str | None:
    effort = fields.string(key)
    if effort and effort not in EFFORTS:
        raise fields.fail(key, f"must be one of {', '.join(EFFORTS)}", effort)
    return effort or None


def _budget(fields: Fields, key: str) -> int | None:
    return fields.integer(key, low=_UNLIMITED)


def _switch(fields: Fields, key: str) -> bool | None:
    if fields.get(key) in (None, "auto"):
        return None
    return fields.boolean(key)


def _thinking(fields: Fields) -> Fields:
    """The `thinking` object; true and false are short for its two types."""
    given = fields.get("thinking")
    if isinstance(given, bool):
        return Fields({"type": "enabled" if given else "disabled"}, fields.name("thinking"))
    return Fields({}) if given is None else Fields.of(given, fields.name("thinking"))


def _type(thinking: Fields) -> bool | None:
    kind = thinking.string("type")
    if kind is None:
        return None
    if kind not in _TYPES:
        raise thinking.fail("type", f"must be one of {', '.join(_TYPES)}", kind)
    return _TYPES[kind]


def _shows(fields: Fields, reasoning: Fields) -> bool:
    return fields.boolean("include_reasoning", True) and not reasoning.boolean("exclude")


def replayed_reasoning(message: Fields) -> str | None:
    """The thinking an assistant message brings back, whichever field holds it; None when it has none."""
    for key in ("reasoning", "reasoning_content", "thinking"):
        if text := message.string(key):
            return text
    for key in ("reasoning_details", "thinking_blocks"):
        blocks = message.array(key) or ()
        if text := "\n".join(filter(None, map(thought_text, blocks))):
            return text
    return None


def thought_text(block: object) -> str:
    """The readable text of one block of thinking: Anthropic's, Mistral's, OpenRouter's. What is encrypted has none."""
    if isinstance(block, str):
        return block
    if not isinstance(block, dict):
        return ""
    for key in ("thinking", "text", "summary", "content"):
        value = block.get(key)
        if isinstance(value, list):
            value = "\n".join(filter(None, map(thought_text, value)))
        if isinstance(value, str) and value:
            return value
    return ""
