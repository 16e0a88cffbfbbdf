"""Structured output as requests ask for it -> rules."""

from __future__ import annotations

from edgewise.core.grammar import (
    FreeText,
    Gbnf,
    Json,
    Lark,
    OneOf,
    OutputFormat,
    Regex,
    Rule,
    Text,
)
from edgewise.grammar.structural_tag import structural_tag


def rule_of(output: OutputFormat) -> Rule | FreeText:
    """What an answer must look like. Raises InvalidRequestError for a structural tag that cannot be read."""
    match output.kind:
        case "json_object":
            return Json({"type": "object"}, output.param, compact=output.compact)
        case "json_schema":
            return Json(
                output.value, output.param, strict=output.strict, compact=output.compact, refuse_broken=True
            )
        case "regex":
            return Regex(output.value)
        case "choice":
            return OneOf(tuple(Text(choice) for choice in output.value))
        case "lark":
            return Lark(output.value)
        case "gbnf":
            return Gbnf(output.value)
        case "structural_tag":
            return structural_tag(output.value, output.param, strict=output.strict)
