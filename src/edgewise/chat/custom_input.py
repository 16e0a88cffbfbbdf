"""The text of a custom tool's call, taken out of the JSON that the model writes it in: `{"input": "..."}` -> its string, as it comes."""

from __future__ import annotations

import json
import re
from typing import Literal

from edgewise.core.chat import CUSTOM_INPUT

OPENING = re.compile(r"\s*\{\s*" + re.escape(json.dumps(CUSTOM_INPUT)) + r'\s*:\s*"')
UNIT = r"\\u[0-9a-fA-F]{4}"
HIGH, LOW = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}",
    r"\\u[dD][c-fC-F][0-9a-fA-F]{2}",
)  # the halves of a pair of surrogates
ALONE = rf"{HIGH}(?=[^\\]|\\[^u]|(?!{LOW}){UNIT})"
CERTAIN = re.compile(rf'(?:[^"\\]|\\[^u]|{HIGH}{LOW}|{ALONE}|(?!{HIGH}){UNIT})*')


class CustomInput:
    """Give it valid JSON in pieces. What is not such an object waits for `finish`, which makes the best of it."""

    def __init__(self) -> None:
        self._text = ""
        self._state: Literal["before", "inside", "after"] = "before"

    def push(self, text: str) -> str:
        """More of the call's arguments; returns more of the input. Half an escape, or half a pair of surrogates, waits."""
        self._text += text
        if self._state == "before" and (match := OPENING.match(self._text)):
            self._text = self._text[match.end() :]
            self._state = "inside"
        if self._state != "inside":
            return ""
        certain = CERTAIN.match(self._text)
        assert certain is not None
        self._text = self._text[certain.end() :]
        if self._text.startswith('"'):
            self._state = "after"
        return _unescaped(certain.group())

    def finish(self) -> str:
        """The arguments are over. Input that is no string is its JSON text; none at all is empty."""
        if self._state != "before" or not self._text.strip():
            return ""
        value = json.loads(self._text)
        if isinstance(value, dict):
            value = value.get(CUSTOM_INPUT, value or "")
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _unescaped(text: str) -> str:
    """What stands between the quotes of a JSON string, decoded; a lone surrogate as U+FFFD."""
    decoded = str(json.loads(f'"{text}"', strict=False))
    return decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
