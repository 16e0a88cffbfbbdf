"""A call's arguments are an object, whatever a tool's schema says of its root."""

from __future__ import annotations

from typing import Any

import pytest

from edgewise.chat.dialects.json_bodies import argument_schema
from edgewise.core.chat import ToolDefinition


@pytest.mark.parametrize(
    "schema",
    [
        {},
        None,
        {"type": ["object", "null"]},
        {"type": "string"},
        {"oneOf": [{"type": "string"}, {"type": "null"}]},
        {"$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}},
    ],
)
def test_the_rule_of_arguments_allows_objects_only(schema: dict[str, Any] | None):
    rule = argument_schema(ToolDefinition("put", None, schema))
    assert isinstance(rule.schema, dict)
    assert rule.schema["type"] == "object"
