"""What the input of a freeform tool has to match, as one regular expression: it is written inside other notation, as calls are."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from edgewise.chat.anchors import choices
from edgewise.chat.lark_patterns import LarkPatternError, pattern_of_lark


def input_pattern(custom_format: Mapping[str, Any] | None) -> str:
    """The expression that all of the input matches; "" where any text does. Raises LarkPatternError where no expression says it."""
    if custom_format is None or not isinstance(definition := custom_format.get("definition"), str):
        return ""
    if custom_format.get("syntax") == "lark":
        return _of_lark(definition)
    return (
        f"^(?:{'|'.join(choice.inner for choice in choices(definition))})$"  # all of the input matches anyway
    )


def unbound(custom_format: Mapping[str, Any] | None) -> str:
    """Why a format is not enforced, or ""."""
    try:
        input_pattern(custom_format)
    except LarkPatternError as error:
        return str(error)
    return ""


@functools.lru_cache(maxsize=64)
def _of_lark(definition: str) -> str:
    return f"^(?:{pattern_of_lark(definition)})$"
