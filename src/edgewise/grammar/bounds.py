"""Bounds a schema does not state and no reader of its answers minds: without them a small model writes digits for ever.

What is left is part of what the schema accepts, so answers stay valid. Integers fit 64 bits; numbers of a closed range have ten
decimals; texts of a format that could go on without end have the length such texts have.
"""

from __future__ import annotations

from typing import Any

MAX_INTEGER = 10**18
DECIMALS = 1e-10  # the engine cannot hold a smaller step
WIDE = 1e-3  # ranges from here on are given that step
FORMAT_LENGTHS = {"time": 32, "date-time": 48, "duration": 48, "email": 100, "hostname": 253, "uri": 2048}


def bound(node: dict[str, Any]) -> None:
    """Add the bounds that one schema, its inner ones left out, lacks."""
    kinds = node.get("type")
    if kinds is None or "enum" in node or "const" in node:
        return
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "integer" in kinds and "number" not in kinds:
        if "minimum" not in node and "exclusiveMinimum" not in node:
            node["minimum"] = -MAX_INTEGER
        if "maximum" not in node and "exclusiveMaximum" not in node:
            node["maximum"] = MAX_INTEGER
    if "number" in kinds and "multipleOf" not in node and _is_closed(node):
        node["multipleOf"] = DECIMALS
    if "string" in kinds and "maxLength" not in node and node.get("format") in FORMAT_LENGTHS:
        node["maxLength"] = FORMAT_LENGTHS[node["format"]]


def _is_closed(node: dict[str, Any]) -> bool:
    low = node.get("minimum", node.get("exclusiveMinimum"))
    high = node.get("maximum", node.get("exclusiveMaximum"))
    return isinstance(low, int | float) and isinstance(high, int | float) and high - low >= WIDE
