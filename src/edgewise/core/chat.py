"""Conversations as every wire format means them, and the events a streamed answer is made of.

`protocols/` parse into these and encode from them; `chat/` renders and decodes them. A part is immutable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from edgewise.core.grammar import OutputFormat
from edgewise.core.requests import RequestTimings, TokenLogprob, Usage

Role = Literal["system", "developer", "user", "assistant", "tool"]
PartKind = Literal["text", "reasoning", "tool_call", "custom_call", "audio"]


@dataclass(frozen=True, slots=True)
class TextPart:
    """Plain text."""

    text: str
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MediaPart:
    """An image, audio or video part as it came; refused by name until a model can take it. `path` is its place in the request."""

    kind: Literal["image", "audio", "video", "document"]
    source: dict[str, Any]
    path: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the assistant made. `arguments` is the wire text; `chat` decides how a template sees it."""

    id: str
    name: str
    arguments: str | dict[str, Any] | None
    extra: dict[str, Any] = field(default_factory=dict)


Part = TextPart | MediaPart


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `index` is its place in the request, for error messages."""

    role: Role
    parts: tuple[Part, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = None
    index: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(p.text for p in self.parts if isinstance(p, TextPart))


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as offered. `parameters`, a JSON schema, reaches the template word for word.

    A "custom" (freeform) tool takes plain text: the model sees a function with one string parameter, `CUSTOM_INPUT`, and its calls come
    back as custom_call parts whose text is that string. `name` is what the model sees; `namespace` and `local_name` are the wire's
    where a namespace was opened for the model. `path` is its place in the request, for errors.
    """

    name: str
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool | None = None
    kind: Literal["function", "custom"] = "function"
    namespace: str | None = None
    local_name: str = ""
    custom_format: dict[str, Any] | None = (
        None  # {"type": "grammar", "syntax": "lark" | "regex", "definition": ...}
    )
    path: str = "tools"
    raw: dict[str, Any] = field(default_factory=dict)


CUSTOM_INPUT = "input"
CUSTOM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {CUSTOM_INPUT: {"type": "string"}},
    "required": [CUSTOM_INPUT],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which calls an answer may or must make. `names`: only these may be called (None: all that are offered).

    A named choice is "required" with one name and `named` set: exactly one call, and finish_reason stays "stop" on OpenAI's APIs.
    """

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] | None = None
    named: bool = False
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class ReasoningOptions:
    """How much to think before answering. `enabled` None: not asked for, which means off."""

    enabled: bool | None = None
    effort: str | None = None  # none, minimal, low, medium, high, xhigh, max
    budget_tokens: int | None = None
    show: bool = True  # False: think, but keep it out of the reply


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat request of any API after parsing: what to render, how to sample, what to send back.

    `sampling` holds only the fields the request gave; the server fills in defaults (`pipeline/defaults.py`).
    `apply_chat_template` False: the contents of the messages, joined, are the prompt as it stands. `reuse_context` False: nothing cached is
    used, and nobody else finds what this request computes. `cache_generated_tokens` False: others find its prompt, but not its answer.
    """

    messages: tuple[Message, ...]
    model: str = ""
    sampling: dict[str, Any] = field(default_factory=dict)
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    output_format: OutputFormat | None = None
    reasoning: ReasoningOptions = ReasoningOptions()
    stream: bool = False
    include_usage: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    apply_chat_template: bool = True
    chat_template: str | None = (
        None  # stands in for the model's; only where the server trusts requests so far
    )
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    reuse_context: bool = True
    cache_generated_tokens: bool = True
    priority: int = 0
    cache_salt: str = ""
    ignored_fields: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartStart:
    """A part of an answer begins. Parts of one choice never overlap."""

    choice: int
    kind: PartKind
    id: str
    name: str = ""  # tool calls
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartDelta:
    """More of the open part: text, reasoning, or argument text."""

    choice: int
    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None

    def joined(self, after: PartDelta) -> PartDelta:
        """This delta and the one that follows it, as one."""
        logprobs = None
        if self.logprobs is not None or after.logprobs is not None:
            logprobs = (self.logprobs or ()) + (after.logprobs or ())
        return PartDelta(self.choice, self.text + after.text, self.token_ids + after.token_ids, logprobs)


@dataclass(frozen=True, slots=True)
class PartEnd:
    """The open part of a choice is complete."""

    choice: int


@dataclass(frozen=True, slots=True)
class Finish:
    """A choice is complete. `usage` is of the whole request so far."""

    choice: int
    reason: str  # stop, length, tool_calls, cancelled
    usage: Usage
    matched_stop: str | int | None = None
    timings: RequestTimings | None = field(default=None, compare=False)  # where the engine is our own


@dataclass(frozen=True, slots=True)
class Failed:
    """The request ended with an error after its headers were sent."""

    error: Exception


ChatEvent = PartStart | PartDelta | PartEnd | Finish | Failed
