"""Marks that an upstream should have kept to itself, found in text that comes in pieces: end-of-turn tokens, and the notation of calls."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgewise.chat.bare_calls import new_call_id
from edgewise.chat.dialects import TextPiece, ToolDialect, ToolEvent, ToolParser, dialect
from edgewise.core.chat import ToolDefinition

END_MARKS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<|end|>",
    "<|eot|>",
    "<|return|>",
    "<|user|>",
    "<|observation|>",
    "<|end▁of▁sentence|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_turn>",
    "<turn|>",
    "<eos>",
    "<eot>",
    "</s>",
    "[EOS]",
)
"""Tokens that end a turn, as the families of models write them."""

_HALVES = frozenset(mark[:n] for mark in END_MARKS for n in range(1, len(mark)))
_LONGEST = max(map(len, END_MARKS))
_STRUCK = "<s>"


class EndMarks:
    """Cuts end marks off the end of a text. In its middle they stay: they are then what the text speaks of. `found`: there was one."""

    def __init__(self) -> None:
        self.found = False
        self._held = ""
        self._struck = False  # in HTML, </s> ends what <s> began
        self._tail = ""

    def push(self, text: str) -> str:
        """More of the text; what may be the beginning of its end waits."""
        seen = self._tail + text
        self._struck = self._struck or _STRUCK in seen
        self._tail = seen[1 - len(_STRUCK) :]
        text = self._held + text
        end = len(text) - self._half(text)
        end = self._without_marks(text, end)
        self._held = text[end:]
        return text[:end]

    def finish(self) -> str:
        """The text is over: what waited and is no mark after all."""
        held, self._held = self._held, ""
        end = self._without_marks(held, len(held))
        self.found = end < len(held)
        return held[:end]

    def _half(self, text: str) -> int:
        """The length of the longest half of a mark at the text's end."""
        return next((n for n in range(min(len(text), _LONGEST - 1), 0, -1) if text[-n:] in _HALVES), 0)

    def _without_marks(self, text: str, end: int) -> int:
        while True:
            body = text[:end].rstrip()
            mark = next((one for one in END_MARKS if body.endswith(one)), None)
            if mark is None or (mark == "</s>" and self._struck):
                return end
            end = len(body) - len(mark)


_OPENINGS: dict[str, str] = {
    "<tool_call>": "",  # three notations begin so: what follows decides
    "<function=": "qwen3_coder",
    "<function_call>": "granite-20b-fc",
    "<|tool_call|>": "granite",
    "<|tool_call_start|>": "lfm2",
    "<|tool_calls_section_begin|>": "kimi_k2",
    "<｜tool▁calls▁begin｜>": "deepseek_v3",
    "<|python_tag|>": "llama3_json",
    "<|python_start|>": "llama4_pythonic",
    "<|tool_call>call:": "gemma4",
    "<start_function_call>": "functiongemma",
    "<minimax:tool_call>": "minimax_m2",
    "<seed:tool_call>": "seed_oss",
    "<atem:function_calls>": "muse_glimmer",
    "<TOOLCALL>": "nemotron_json",
    "[TOOL_CALLS]": "mistral",
    "functools[": "phi4_mini_json",
}
_FIRSTS = re.compile("[" + re.escape("".join({opening[0] for opening in _OPENINGS})) + "]")
_SPACE_AND_ONE = re.compile(r"\s*\S")
_FUNCTION = "<function="


class LeakedCalls:
    """Reads calls in whichever notation a text first writes one; until then it is text. A ChatDecoder's parser. `found`: it wrote one."""

    def __init__(self, tools: Sequence[ToolDefinition]) -> None:
        self._tools = tools
        self._held = ""
        self._parser: ToolParser | None = None

    @property
    def found(self) -> bool:
        return self._parser is not None

    def push(self, text: str) -> list[ToolEvent]:
        if self._parser is not None:
            return self._parser.push(text)
        self._held += text
        return self._read(final=False)

    def finish(self) -> list[ToolEvent]:
        events = self._read(final=True) if self._parser is None else []
        return events if self._parser is None else [*events, *self._parser.finish()]

    def _read(self, *, final: bool) -> list[ToolEvent]:
        """Text up to where calls may begin; what they are written in decides who reads from there on."""
        start, found = self._opening(final=final)
        text, self._held = self._held[:start], self._held[start:]
        events: list[ToolEvent] = [TextPiece(text)] if text else []
        if found is None:
            return events
        self._parser = found.parser(self._tools, new_id=new_call_id)
        held, self._held = self._held, ""
        return [*events, *self._parser.push(held)]

    def _opening(self, *, final: bool) -> tuple[int, ToolDialect | None]:
        """(where the text stops being text, the dialect of what begins there)."""
        text = self._held
        for match in _FIRSTS.finditer(text):
            rest = text[match.start() :]
            for opening, name in _OPENINGS.items():
                if rest.startswith(opening):
                    found = name or _of_tool_call(rest[len(opening) :], final=final)
                    return match.start(), dialect(found) if found else None
                if not final and opening.startswith(rest):
                    return match.start(), None
        return len(text), None


def _of_tool_call(rest: str, *, final: bool) -> str:
    """Whose <tool_call> it is: JSON, elements, or a name with argument elements; "" while that is open."""
    match = _SPACE_AND_ONE.match(rest)
    if match is None:
        return "hermes" if final else ""
    body = rest[match.end() - 1 :]
    if body[0] in "{[":
        return "hermes"
    if body.startswith(_FUNCTION):
        return "qwen3_coder"
    if not final and _FUNCTION.startswith(body):
        return ""
    return "glm45"
