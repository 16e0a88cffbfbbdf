"""Thinking: every way to ask for it and to send it back, one meaning."""

from __future__ import annotations

from typing import Any

import pytest

from edgewise.core.chat import ReasoningOptions
from edgewise.core.errors import InvalidRequestError
from edgewise.protocols.fields import Fields
from edgewise.protocols.reasoning_fields import EFFORTS, read_reasoning, replayed_reasoning

OFF = ReasoningOptions(enabled=False)
ON = ReasoningOptions(enabled=True)


def read(**body: Any) -> ReasoningOptions:
    return read_reasoning(Fields(body))


@pytest.mark.parametrize(
    "body",
    [{}, {"reasoning": {}}, {"thinking": None}, {"reasoning_effort": None}, {"thinking": {"type": "auto"}}],
)
def test_nothing_is_asked_for_where_nothing_is_said(body: dict[str, Any]):
    assert read(**body).enabled is None


@pytest.mark.parametrize("on", [True, False])
def test_switches(on: bool):
    expected = ON if on else OFF
    assert read(enable_thinking=on) == expected
    assert read(chat_template_kwargs={"enable_thinking": on}) == expected
    assert read(chat_template_kwargs={"thinking": on}) == expected
    assert read(thinking={"type": "enabled" if on else "disabled"}) == expected
    assert read(thinking=on) == expected
    assert read(reasoning={"enabled": on}) == expected


def test_adaptive_asks_for_thinking():
    assert read(thinking={"type": "adaptive"}) == ON


@pytest.mark.parametrize("effort", EFFORTS)
def test_an_effort_asks_and_none_is_off(effort: str):
    expected = ReasoningOptions(enabled=effort != "none", effort=effort)
    assert read(reasoning_effort=effort) == read(reasoning={"effort": effort}) == expected
    assert read(chat_template_kwargs={"reasoning_effort": effort}) == expected


@pytest.mark.parametrize(
    "body",
    [
        {"thinking_budget": 7},
        {"thinking_token_budget": 7},
        {"reasoning_budget": 7},
        {"thinking_budget_tokens": 7},
        {"chat_template_kwargs": {"thinking_budget": 7}},
        {"reasoning": {"max_tokens": 7}},
        {"reasoning": {"budget": 7}},
        {"reasoning": {"budget_tokens": 7}},
        {"thinking": {"budget_tokens": 7}},
    ],
)
def test_a_budget_asks_and_limits(body: dict[str, Any]):
    assert read(**body) == ReasoningOptions(enabled=True, budget_tokens=7)
    name, value = next(iter(body.items()))
    empty = dict.fromkeys(value, 0) if isinstance(value, dict) else 0
    assert read(**{name: empty}) == ReasoningOptions(enabled=False, budget_tokens=0)
    unlimited = dict.fromkeys(value, -1) if isinstance(value, dict) else -1
    assert read(**{name: unlimited}) == ON


def test_the_most_specific_switch_decides():
    assert read(chat_template_kwargs={"enable_thinking": False}, enable_thinking=True).enabled is False
    assert read(enable_thinking=False, reasoning_effort="high").enabled is False
    assert read(enable_thinking=True, reasoning_effort="none") == ON
    assert read(thinking={"type": "disabled"}, thinking_budget=100).enabled is False
    assert read(reasoning_effort="none", thinking_budget=100).enabled is False
    assert read(thinking={"type": "enabled", "budget_tokens": 5}) == ReasoningOptions(True, None, 5)


def test_thinking_can_be_kept_out_of_the_reply():
    assert not read(include_reasoning=False).show
    assert not read(reasoning={"exclude": True}).show
    assert read(include_reasoning=True, reasoning={"effort": "low"}).show


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"reasoning_effort": "enormous"}, "reasoning_effort"),
        ({"reasoning_effort": 3}, "reasoning_effort"),
        ({"reasoning": "high"}, "reasoning"),
        ({"reasoning": {"effort": "x"}}, "reasoning.effort"),
        ({"reasoning": {"max_tokens": "x"}}, "reasoning.max_tokens"),
        ({"enable_thinking": "yes"}, "enable_thinking"),
        ({"chat_template_kwargs": {"enable_thinking": "no"}}, "chat_template_kwargs.enable_thinking"),
        ({"thinking": {"type": "sometimes"}}, "thinking.type"),
        ({"thinking": "yes"}, "thinking"),
        ({"thinking": {"budget_tokens": -5}}, "thinking.budget_tokens"),
        ({"thinking_budget": 1.5}, "thinking_budget"),
        ({"include_reasoning": "no"}, "include_reasoning"),
    ],
)
def test_refusals_name_the_field(body: dict[str, Any], param: str):
    with pytest.raises(InvalidRequestError) as caught:
        read(**body)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "message",
    [
        {"reasoning": "hm"},
        {"reasoning_content": "hm"},
        {"reasoning": "", "reasoning_content": "hm"},
        {"thinking": "hm"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "xx"}, {"summary": "hm"}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": ""}]},
        {"thinking_blocks": [{"type": "redacted_thinking", "data": "xx"}, {"thinking": [{"text": "hm"}]}]},
    ],
)
def test_replayed_thinking_in_every_spelling(message: dict[str, Any]):
    assert replayed_reasoning(Fields(message)) == "hm"


def test_no_thinking_is_none():
    assert replayed_reasoning(Fields({"reasoning": None, "reasoning_details": []})) is None
    assert replayed_reasoning(Fields({"thinking_blocks": [{"data": "xx"}, 5]})) is None
