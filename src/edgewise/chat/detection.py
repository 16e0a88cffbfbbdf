"""Interim until the template probes land."""

from __future__ import annotations

from dataclasses import dataclass

from edgewise.chat.template import ChatTemplate


@dataclass(frozen=True, slots=True)
class Detection:
    tools: str
    reasoning: str
    why: str
    sure: bool


def detect(template: ChatTemplate, *, tools: str = "auto", reasoning: str = "auto") -> Detection:
    source = template.source
    if reasoning == "auto":
        reasoning = "think_auto" if "<think>" in source else "none"
    return Detection("hermes" if tools == "auto" else tools, reasoning, "interim", "<tool_call>" in source)
