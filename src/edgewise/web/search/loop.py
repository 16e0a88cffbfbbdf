"""The research for one answer: the model searches and reads as it likes within limits, then answers. It sees its own calls with their arguments
as objects, since some servers render arguments that are text as nothing, and a model that sees empty calls repeats them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from edgewise.core.errors import EdgewiseError
from edgewise.web.search.limits import Limits
from edgewise.web.search.tools import TOOLS, Research

_MAX_CALLS = 64  # that are told apart in one round; far fewer are made

HINT = (
    "You can search the web. Search before you answer, read a page where its extract is not enough, and cite what you use by its number, "
    "like [1]. Name no source that you were not shown."
)
_ASK_AGAIN = (
    "Now answer my question from what you found, and cite the numbers of the sources you use, like [1]."
)


class ModelError(EdgewiseError):
    """The model's server refused or broke off. `body` is its error object, `status` what it answered with, `retry_after` its header."""

    def __init__(self, message: str, status: int, body: bytes, retry_after: str | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.status = status
        self.body = body


class Model(Protocol):
    """Who is asked."""

    def chunks(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The chunks of a streamed chat completion. Raises ModelError."""
        ...


@dataclass(slots=True)
class Round:
    """What one round of the model brought."""

    text: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    finish: str | None = None

    def take(self, delta: dict[str, Any]) -> None:
        self.text += delta.get("content") or ""
        self.reasoning += delta.get("reasoning_content") or delta.get("reasoning") or ""
        for piece in delta.get("tool_calls") or ():
            index = min(piece.get("index") or 0, _MAX_CALLS - 1)
            while len(self.calls) <= index:  # pieces of one call may come between those of another
                self.calls.append({"id": "", "name": "", "arguments": ""})
            call, called = self.calls[index], piece.get("function") or {}
            call["id"] = call["id"] or piece.get("id") or ""
            call["name"] += called.get("name") or ""
            call["arguments"] += called.get("arguments") or ""


class Loop:
    """Runs once. `usage` is the sum of all rounds, `text` all that was written."""

    def __init__(self, model: Model, research: Research, limits: Limits) -> None:
        self._model = model
        self._research = research
        self._limits = limits
        self._num_calls = 0
        self.usage: dict[str, Any] = {}
        self.text = ""
        self.finish = "stop"
        self.last: dict[str, Any] = {}

    async def run(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The chunks to pass on. Raises ModelError."""
        messages = _with_hint(list(body["messages"]))
        asked = {
            key: value for key, value in body.items() if key not in ("messages", "tools", "tool_choice", "n")
        }
        idle = 0  # rounds in a row that brought nothing new
        for number in range(self._limits.tool_rounds):
            choice = "required" if number == 0 else "auto"
            turn = Round()
            request = {**asked, "messages": messages, "tools": TOOLS, "tool_choice": choice}
            async for chunk in self._round(request, turn):
                yield chunk
            if not turn.calls:
                break
            before = self._research.num_made
            messages += await self._answered(turn)
            idle = idle + 1 if self._research.num_made == before else 0
            if idle == self._limits.idle_rounds:
                turn = Round()
                break
        else:
            turn = Round()
        for _ in range(self._limits.answer_rounds):
            if turn.text.strip():
                return
            turn = Round()
            async for chunk in self._round({**asked, "messages": [*messages, self._ask_again()]}, turn):
                yield chunk

    async def _round(self, body: dict[str, Any], turn: Round) -> AsyncIterator[dict[str, Any]]:
        """One answer of the model. Its calls are ours; all else is passed on, as far as one round may write."""
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        async with contextlib.aclosing(self._model.chunks(asked)) as chunks:
            async for chunk in self._passed_on(chunks, turn):
                yield chunk
        self.text += turn.text
        self.finish = "length" if turn.finish == "length" and not turn.calls else "stop"

    async def _passed_on(
        self, chunks: AsyncIterator[dict[str, Any]], turn: Round
    ) -> AsyncIterator[dict[str, Any]]:
        written = 0
        async for chunk in chunks:
            self._count(chunk.get("usage"))
            self.last = {key: chunk[key] for key in ("id", "created", "model") if key in chunk}
            for choice in chunk.get("choices") or ():
                delta = choice.get("delta") or {}
                turn.take(delta)
                turn.finish = choice.get("finish_reason") or turn.finish
                shown = {key: value for key, value in delta.items() if key != "tool_calls" and value}
                shown.pop("role", None)
                written += len(json.dumps(delta))  # calls too: one could be written for ever
                if shown:
                    yield {
                        **chunk,
                        "usage": None,
                        "choices": [{**choice, "delta": shown, "finish_reason": None}],
                    }
            if written > self._limits.round_bytes:
                turn.finish = "length"
                return

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Sums of tokens; what was cached is a part of the prompts' sum."""
        if not usage:
            return
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.usage[name] = self.usage.get(name, 0) + (usage.get(name) or 0)
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        before = (self.usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        self.usage["prompt_tokens_details"] = {"cached_tokens": before + cached}

    async def _answered(self, turn: Round) -> list[dict[str, Any]]:
        """The turn as history, and a result for each of its calls."""
        calls, results = [], []
        for number, call in enumerate(turn.calls):
            arguments = _object(call["arguments"])
            self._num_calls += 1
            call_id = call["id"] or f"web_{self._num_calls}"
            written = {"name": call["name"], "arguments": {} if arguments is None else arguments}
            calls.append({"id": call_id, "type": "function", "function": written})
            if number >= self._limits.calls_per_round:
                result = f"Not done: at most {self._limits.calls_per_round} calls at once."
            elif arguments is None:
                result = "The arguments were not a JSON object. Make the call again."
            else:
                result = await self._research.call(call["name"], arguments)
            results.append({"role": "tool", "tool_call_id": call_id, "content": result})
        thoughts = {"reasoning_content": turn.reasoning} if turn.reasoning else {}  # templates repeat them
        said = {"role": "assistant", "content": turn.text or None, **thoughts, "tool_calls": calls}
        return [said, *results]

    def _ask_again(self) -> dict[str, Any]:
        """The last turn of a round without tools: what was found, and what is wanted. At the end, so that all before it stays cached."""
        listed = self._research.sources.hosts_listed(self._limits.sources)
        return {"role": "user", "content": f"{_ASK_AGAIN}\n\nSources:\n{listed or '(none was found)'}"}


def _with_hint(messages: list[Any]) -> list[Any]:
    """The hint as part of the first system message, or as one."""
    first = messages[0] if messages else None
    if isinstance(first, dict) and first.get("role") == "system" and isinstance(first.get("content"), str):
        return [{**first, "content": f"{first['content']}\n\n{HINT}"}, *messages[1:]]
    return [{"role": "system", "content": HINT}, *messages]


def _object(text: str) -> dict[str, Any] | None:
    """Arguments as an object of what JSON may hold: no NaN, and no half of a character."""
    try:
        value = json.loads(text or "{}", parse_constant=_no_constant)
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_constant(name: str) -> None:
    raise ValueError(name)
