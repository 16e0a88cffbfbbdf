"""What is known of an upstream: the APIs it speaks, its models and their limits, the fields it takes, the faults it has.

A profile is learned (from the upstream's own lists and by the doctor's probes), stored per upstream and version, and read by
routing, shaping and forwarding. It is data; each fault's cure is a step of `shaping/`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Api(StrEnum):
    """The APIs the gateway offers; the value is the path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    MESSAGES = "/v1/messages"
    COUNT_TOKENS = "/v1/messages/count_tokens"
    RESPONSES = "/v1/responses"
    EMBEDDINGS = "/v1/embeddings"


class Kind(StrEnum):
    """The kinds of upstream. Whoever shapes or asks matches all of them, so that a new kind does not type-check until each says what to do."""

    EDGEWISE = "edgewise"
    LLAMA = "llama"
    EDGE_LLM = "edge-llm"
    VLLM = "vllm"
    OPENAI = "openai"


class Fault(StrEnum):
    """What is wrong with an upstream for agent use, as the doctor names it. A fault without a cure is only reported."""

    NO_CHAT = "no-chat"  # a plain chat gets no answer
    TOOLS_REFUSED = "tools-refused"  # a request with tools and a free choice is refused
    STRING_ARGUMENTS = "string-arguments"  # calls in history whose arguments are text render empty
    OBJECT_ARGUMENTS = "object-arguments"  # ... whose arguments are objects are refused
    LOST_ARGUMENTS = "lost-arguments"  # ... reach the template in neither form, or prompt_tokens are not true
    LATE_SYSTEM = "late-system"  # a system message after the first turn is refused, or dropped
    SEVERAL_SYSTEM = "several-system"  # of more than one, likewise
    DEVELOPER_ROLE = "developer-role"  # likewise
    UNKNOWN_FIELDS = "unknown-fields"  # refused instead of ignored
    MODEL_NAME = "model-name"  # any name but its own is refused
    REQUIRED_CHOICE = "required-choice"  # tool_choice required is accepted and not enforced
    NAMED_CHOICE = "named-choice"  # likewise a named tool
    CHOICE_REFUSED = (
        "choice-refused"  # tool_choice required, or a named tool, is refused though tools are not
    )
    NONE_CHOICE = "none-choice"  # tools are called although tool_choice is none
    PARALLEL_CALLS = "parallel-calls"  # parallel_tool_calls false is not heeded
    CALL_IDS = "call-ids"  # calls of answers in one piece lack ids
    CALL_INDICES = "call-indices"  # streamed calls lack stable indices or ids
    FINISH_REASON = "finish-reason"  # answers with calls end in "stop"
    END_MARK = "end-mark"  # streams end without [DONE]
    STREAM_USAGE = "stream-usage"  # include_usage gives no usage
    STOP_STRINGS = "stop-strings"  # not heeded, or part of the text
    MAX_TOKENS = "max-tokens"  # a limit above the room left is refused instead of clamped
    LIMIT_IGNORED = "limit-ignored"  # answers go on beyond their limit
    OVERFLOW = "overflow"  # a prompt too long is cut silently, or refused in a shape clients do not know
    NO_CANCEL = "no-cancel"  # goes on after the client left
    NO_PREFIX_CACHE = "no-prefix-cache"  # a repeated prompt costs what it cost before
    CACHED_TOKENS = "cached-tokens"  # usage does not tell what the cache saved
    JSON_SCHEMA = "json-schema"  # response_format json_schema is refused or not enforced
    COUNT_TOKENS = (
        "count-tokens"  # differs from what the request then reports, or waits behind running answers
    )
    SILENT_PREFILL = "silent-prefill"  # no sign of life before the first token
    LEAKED_END_TOKENS = "leaked-end-tokens"  # end-of-turn markers in the text
    LEAKED_TOOL_MARKUP = "leaked-tool-markup"  # calls come as text
    REASONING_FIELD = "reasoning-field"  # thinking comes inside the text
    THINKING_SWITCH = "thinking-switch"  # thinks unless a request switches it off
    ALWAYS_THINKS = "always-thinks"  # whatever is asked
    MESSAGE_EVENTS = "message-events"  # streamed messages are refused, or lack what Anthropic's events have
    RESPONSE_EVENTS = "response-events"  # streamed responses lack what OpenAI's events have: numbers, places
    ERROR_SHAPE = "error-shape"  # errors are no error objects, or input errors are 500s
    OPEN_DOOR = "open-door"  # a wrong API key is taken although one was asked for


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One model of an upstream. `window`: most tokens of prompt and answer; `max_input`: longest prompt, often less."""

    id: str
    aliases: tuple[str, ...] = ()
    loaded: bool = True
    window: int | None = None
    max_input: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)  # its entry in the upstream's list


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of one upstream at one version.

    `apis`: spoken natively. `fields`: per API the only request fields taken, absent where any field may come.
    """

    kind: Kind
    version: str = ""
    apis: frozenset[Api] = frozenset({Api.CHAT})
    fields: Mapping[Api, frozenset[str]] = field(default_factory=dict)
    faults: frozenset[Fault] = frozenset()
    models: tuple[ModelCard, ...] = ()

    def replace(self, **changes: Any) -> Profile:
        return dataclasses.replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Plain values, in a stable order."""
        return {
            "kind": self.kind.value,
            "version": self.version,
            "apis": sorted(api.value for api in self.apis),
            "fields": {api.value: sorted(names) for api, names in sorted(self.fields.items())},
            "faults": sorted(fault.value for fault in self.faults),
            "models": [dataclasses.asdict(card) for card in self.models],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Profile:
        """The profile `to_json` wrote. Raises ValueError or KeyError for anything else; faults this version does not know are left out."""
        known = {fault.value for fault in Fault}
        return cls(
            kind=Kind(values["kind"]),
            version=values["version"],
            apis=frozenset(map(Api, values["apis"])),
            fields={Api(api): frozenset(names) for api, names in values["fields"].items()},
            faults=frozenset(Fault(name) for name in values["faults"] if name in known),
            models=tuple(
                ModelCard(**{**card, "aliases": tuple(card["aliases"])}) for card in values["models"]
            ),
        )
