"""What of a freeform tool is not enforced is said."""

from __future__ import annotations

import pytest

from edgewise.core.chat import CUSTOM_SCHEMA, ToolDefinition
from edgewise.pipeline.chat_style import unbound_inputs


@pytest.mark.parametrize(("syntax", "said"), [("lark", True), ("regex", False), (None, False)])
def test_a_lark_grammar_of_a_freeform_tool_is_named_in_a_warning(syntax: str | None, said: bool):
    form = None if syntax is None else {"type": "grammar", "syntax": syntax, "definition": "start: /a/"}
    tool = ToolDefinition("patch", None, CUSTOM_SCHEMA, kind="custom", custom_format=form, path="tools[2]")
    assert [warning.startswith("tools[2]: ") for warning in unbound_inputs((tool,))] == [True] * said
