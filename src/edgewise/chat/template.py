"""Conversations to prompts: renders a model's own chat template, safely, and turns the result into tokens.

A rendering takes a few milliseconds for a long history but runs somebody else's program, so never on the event loop. Templates run
in a process of their own (`sandbox.py`); text of messages and tools never becomes a control token (`guard.py`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from edgewise.chat.capabilities import probe
from edgewise.chat.dialects import ToolDialect
from edgewise.chat.guard import ControlGuard, map_leaves, pick_marks
from edgewise.chat.history import Capabilities, Turn, arrange, tool_schemas
from edgewise.chat.reasoning import reasoning_dialect, reasoning_names
from edgewise.chat.template_process import Result, TemplateOverrunError, TemplateProcess
from edgewise.core.chat import Message, ToolDefinition
from edgewise.core.errors import InvalidRequestError, ModelError

DEADLINE_S = 10.0
RESERVED_KWARGS = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})


class PromptTokenizer(Protocol):
    """What turning a prompt into tokens needs of a tokenizer."""

    bos_token_id: int | None
    adds_bos: bool

    def encode_segments(self, segments: Sequence[str]) -> tuple[list[int], list[tuple[int, int]]]: ...


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt as text. A control token counts only where it lies within one segment; the segments joined are `text`."""

    text: str
    segments: tuple[str, ...]
    borders: tuple[int, ...] = ()  # characters from the start after which a message is over, ascending


class ChatTemplate:
    """A model's chat template. Any thread; renderings wait for one another.

    `control_tokens` are the tokenizer's, which messages must not be able to write. Construction starts the template's process and
    tries it out; `capabilities` is what came of it. Raises ModelError for a template that does not compile, does not end, or cannot
    render a user message.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str,
        eos_token: str,
        control_tokens: Collection[str] = (),
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.source = source
        self._always = {"bos_token": bos_token, "eos_token": eos_token}
        self._guard = ControlGuard(control_tokens)
        self._process = TemplateProcess(source, deadline_s=deadline_s)
        try:
            self.capabilities: Capabilities = probe(self._render_all)
        except TemplateOverrunError as error:
            raise ModelError(error.message) from None

    def close(self) -> None:
        """End the template's process; it starts again when needed."""
        self._process.close()

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolDefinition] = (),
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        kwargs: Mapping[str, Any] | None = None,
        tool_dialect: ToolDialect | None = None,
    ) -> RenderedPrompt:
        """Render a conversation.

        With `continue_final_message` the prompt ends where the text of the last message, the assistant's, ends, its thinking closed.
        `kwargs` are further variables for the template. `tool_dialect` is how the model is told to write calls, and earlier calls
        are written, where the template has no words for tools. Raises InvalidRequestError for what the template refuses, in its
        words, or overruns on.
        """
        told = tools and tool_dialect is not None and not self.capabilities.tools
        turns = arrange(
            messages,
            self.capabilities,
            instructions=tool_dialect.instructions(tools) if told and tool_dialect else "",
            dialect=tool_dialect,
        )
        context = {
            **_checked_kwargs(kwargs or {}),
            "tools": tool_schemas(tools) or ([] if self.capabilities.tools_always_list else None),
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
        }
        breaker, border, end = pick_marks([turns, context], 3, self.source)
        turns = [self._guarded(turn, breaker) for turn in turns]
        context = map_leaves(context, lambda text: self._guard.break_text(text, breaker))
        if continue_final_message:
            return self._continue(turns, context, breaker, border, end)
        plain, marked = self._render_request(
            [context | {"messages": turns}, context | {"messages": _mark_ends(turns, border)}]
        )
        return self._prompt(_text_of(plain), marked.text, breaker, border)

    def _guarded(self, turn: Turn, breaker: str) -> Turn:
        """The turn with control tokens broken; an assistant's own thinking markers are for the template to find."""
        spare = _is_thinking_marker if turn["role"] == "assistant" else None
        return {
            name: value
            if name == "role"
            else map_leaves(value, lambda text: self._guard.break_text(text, breaker, spare=spare))
            for name, value in turn.items()
        }

    def _continue(
        self, turns: list[Turn], context: dict[str, Any], breaker: str, border: str, end: str
    ) -> RenderedPrompt:
        """Cut the prompt where the last message's text ends; a mark there finds the place whatever the template adds."""
        last = turns[-1] if turns else {}
        if last.get("role") != "assistant" or last.get("tool_calls"):
            raise InvalidRequestError(
                "only a conversation that ends with text of the assistant can be continued", param="messages"
            )
        before = turns[:-1]
        plain, marked, opened = self._render_request(
            [
                context | {"messages": _mark_ends(turns, end, count=1)},
                context | {"messages": [*_mark_ends(before, border), *_mark_ends([last], end)]},
                context | {"messages": before, "add_generation_prompt": True},
            ]
        )
        content = _content_of(last)
        text, found, _ = plain.text.rpartition(end)
        if found:
            with_borders = _thinking_closed(marked.text.rpartition(end)[0], content)
            return self._prompt(_thinking_closed(text, content), with_borders, breaker, border)
        # The template leaves the message out (or refuses it here): write it after the opening of an answer.
        return self._prompt(_thinking_closed(_text_of(opened) + content, content), "", breaker, border)

    def _prompt(self, text: str, marked: str, breaker: str, border: str) -> RenderedPrompt:
        """Split at broken tokens. `marked` is the same rendering with `border` after each message's text, if all went well."""
        segments = tuple(text.split(breaker))
        clean = "".join(segments)
        places: list[int] = []
        if marked.replace(border, "") == text:
            position = 0
            for piece in marked.split(border)[:-1]:
                position += len(piece) - piece.count(breaker)
                places.append(self._message_end(clean, position))
        return RenderedPrompt(clean, segments, tuple(sorted(set(places))))

    def _message_end(self, text: str, position: int) -> int:
        """From the end of a message's content over the control token and the line end that close it, where there are any."""
        position = self._guard.match_end(text, position)
        return position + (text[position : position + 1] == "\n")

    def _render_request(self, contexts: Sequence[dict[str, Any]]) -> list[Result]:
        try:
            return self._render_all(contexts)
        except TemplateOverrunError as error:
            raise InvalidRequestError(error.message, param="messages") from None

    def _render_all(self, contexts: Sequence[dict[str, Any]]) -> list[Result]:
        return self._process.render([self._always | context for context in contexts])


def encode_prompt(tokenizer: PromptTokenizer, rendered: RenderedPrompt) -> tuple[list[int], list[int]]:
    """Token ids of a prompt, and the positions in them where messages end (ascending; for prefix-cache checkpoints).

    The beginning token is added where the model wants one and the template did not write it. A message that does not end where a
    token must end counts up to the last such place within it.
    """
    ids, marks = tokenizer.encode_segments(rendered.segments)
    shift = 0
    if tokenizer.adds_bos and tokenizer.bos_token_id is not None and ids[:1] != [tokenizer.bos_token_id]:
        ids.insert(0, tokenizer.bos_token_id)
        shift = 1
    borders: set[int] = set()
    place = 0
    for border in rendered.borders:
        while place < len(marks) and marks[place][0] <= border:
            place += 1
        if place and marks[place - 1][1]:
            borders.add(marks[place - 1][1] + shift)
    return ids, sorted(borders)


def _checked_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in kwargs.items():
        path = f"chat_template_kwargs.{name}"
        if name in RESERVED_KWARGS or name == "chat_template":
            raise InvalidRequestError(f"chat_template_kwargs must not set {name!r}", param=path)
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            raise InvalidRequestError(f"{path} must be a JSON value", param=path) from None
    return dict(kwargs)


def _is_thinking_marker(token: str) -> bool:
    return "think" in token.lower()


def _content_of(turn: Turn) -> str:
    content = turn["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _thinking_closed(text: str, content: str) -> str:
    """A prompt that ends with `content`, with the thought closed that the template opens right before it."""
    if not content or not text.endswith(content):
        return text
    before = text[: -len(content)]
    for dialect in map(reasoning_dialect, reasoning_names()):
        if dialect.is_open(before):
            return before + dialect.end + ("\n\n" if before.endswith("\n") else "") + content
    return text


def _mark_ends(turns: Sequence[Turn], mark: str, *, count: int | None = None) -> list[Turn]:
    """The turns with `mark` after the text of each (of the last `count`); turns without text stay as they are."""
    first = 0 if count is None else len(turns) - count
    return [_marked(turn, mark) if i >= first else turn for i, turn in enumerate(turns)]


def _marked(turn: Turn, mark: str) -> Turn:
    content = turn["content"]
    if not content:
        return turn
    if isinstance(content, str):
        return turn | {"content": content + mark}
    if "text" not in content[-1]:
        return turn
    return turn | {"content": [*content[:-1], content[-1] | {"text": content[-1]["text"] + mark}]}


def _text_of(result: Result) -> str:
    if result.error == "raised":
        raise InvalidRequestError(
            f"the chat template refuses the messages: {result.message}", param="messages"
        )
    if result.error:
        raise InvalidRequestError(
            f"the chat template cannot render the messages: {result.message}", param="messages"
        )
    return result.text
