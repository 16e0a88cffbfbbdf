"""Recorded outputs of every dialect: the calls and the text they mean, however they are cut."""

from __future__ import annotations

from typing import Any

import pytest

from edgewise.chat.dialects import dialect, names
from tests.chat.dialects.support import CASES, offered, parse

NAMED = [
    (name, case) for case in CASES for name in (case["dialect"], *case.get("also", [])) if name in names()
]


@pytest.mark.parametrize(("name", "case"), NAMED, ids=[f"{name}:{case['id']}" for name, case in NAMED])
def test_a_recorded_output_gives_its_calls_and_text(name: str, case: dict[str, Any]):
    text, tools = case["text"], offered(case)
    whole = parse(dialect(name), tools, [text])
    assert whole.content.strip() == case["content"].strip()
    assert [{"name": call.name, "arguments": call.arguments} for call in whole.calls] == case["calls"]
    assert all(call.complete for call in whole.calls)
    assert parse(dialect(name), tools, text) == whole
    for cut in range(1, len(text)):
        assert parse(dialect(name), tools, [text[:cut], text[cut:]]) == whole, f"cut at {cut}"
