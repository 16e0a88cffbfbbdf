"""POST /v1/messages and /v1/messages/count_tokens: the request as Claude Code and Anthropic's packages send it, the reply in one piece.

The stream of events is in `anthropic_stream`, the conversation in `anthropic_messages`, tools in `anthropic_tools`.

Usage. `cache_read_input_tokens` is what the prefix cache saved, `input_tokens` what had to be computed; the two add up to the prompt.
`cache_creation_input_tokens` is 0: the cache keeps every prompt by itself, so no tokens are written at a client's bidding. Where a
prompt is long the first event goes out long before the engine has looked at it. Its split is what the cache held when the request
was submitted. Other requests can change that until this one is scheduled, so the last event's usage, which is cumulative in
this API, tells what happened. count_tokens tells the whole prompt.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, replace
from typing import Any

import orjson

from edgewise.core.chat import ChatRequest, ReasoningOptions
from edgewise.core.errors import RequestCancelledError
from edgewise.core.grammar import OutputFormat
from edgewise.core.requests import Usage
from edgewise.core.sampling import MAX_STOP_STRINGS
from edgewise.protocols.anthropic_messages import ConversationReader
from edgewise.protocols.anthropic_tools import read_tool_choice, read_tools
from edgewise.protocols.chat import read_template_kwargs
from edgewise.protocols.fields import Fields, read_cache_salt
from edgewise.protocols.messages import trailing_turn
from edgewise.protocols.reasoning_fields import EFFORTS, read_reasoning, reasoning_options
from edgewise.protocols.reply import Choice, Reply, ReplyHead, ReplyOptions, ReplyPart
from edgewise.protocols.sampling import check_sampling

_MET = ("metadata", "cache_control")
"""Fields that ask for nothing, or for what is done anyway."""


@dataclass(frozen=True, slots=True)
class ParsedMessages:
    """A messages request and what its reply has to look like."""

    chat: ChatRequest
    reply: ReplyOptions


def parse_request(body: object) -> ParsedMessages:
    """A decoded JSON body -> what it asks. Raises InvalidRequestError with the dotted `param`."""
    fields = Fields.of(body, "")
    fields.require("max_tokens")
    return _parse(fields)


def parse_count(body: object) -> ParsedMessages:
    """The body of count_tokens: the same, but nothing about the answer has to be given or possible."""
    parsed = _parse(Fields.of(body, ""))
    return replace(parsed, chat=replace(parsed.chat, sampling={}))


def _parse(fields: Fields) -> ParsedMessages:
    if fields.get("chat_template"):
        raise fields.fail("chat_template", "in a request is not allowed on this server")
    reader = ConversationReader()
    messages, opens, continues = trailing_turn(reader.read(fields), fields)
    tools, left_out = read_tools(fields)
    reasoning, unmet = _read_reasoning(fields)
    chat = ChatRequest(
        messages=messages,
        model=fields.string("model") or "",
        sampling=_read_sampling(fields),
        tools=tools,
        tool_choice=read_tool_choice(fields, tools),
        output_format=_read_output_format(fields),
        reasoning=reasoning,
        stream=fields.boolean("stream"),
        include_usage=True,
        add_generation_prompt=opens,
        continue_final_message=continues,
        template_kwargs=read_template_kwargs(fields),
        priority=fields.integer("priority", low=-(2**63), high=2**63 - 1) or 0,
        cache_salt=read_cache_salt(fields),
    )
    for name in _MET:
        fields.get(name)
    ignored = (*fields.unread(), *reader.ignored, *left_out, *unmet)
    return ParsedMessages(replace(chat, ignored_fields=ignored), ReplyOptions(stream=chat.stream))


def _read_sampling(fields: Fields) -> dict[str, Any]:
    """max_tokens 0 computes the prompt, and so fills the cache, without an answer."""
    given = {
        "max_tokens": fields.integer("max_tokens", low=0),
        "temperature": fields.number("temperature"),
        "top_p": fields.number("top_p"),
        "top_k": fields.integer("top_k"),
        "seed": fields.integer("seed"),
        "stop": _read_stops(fields),
    }
    sampling = {name: value for name, value in given.items() if value is not None}
    check_sampling(sampling)
    return sampling


def _read_stops(fields: Fields) -> list[str] | None:
    stops = fields.strings("stop_sequences") or []
    if len(stops) > MAX_STOP_STRINGS:
        raise fields.fail("stop_sequences", f"must hold at most {MAX_STOP_STRINGS} texts, got {len(stops)}")
    for i, text in enumerate(stops):
        if not text:
            raise fields.fail(f"stop_sequences[{i}]", "must not be empty")
    return stops or None


def _read_reasoning(fields: Fields) -> tuple[ReasoningOptions, list[str]]:
    """How much to think, read as on every other API, and the fields about it that have no effect.

    Claude Code names an effort with every request, also when its user has turned thinking off, so this API's own effort says how much and
    never whether.
    """
    options = read_reasoning(fields)
    output, thinking = fields.object("output_config"), fields.get("thinking")
    if isinstance(thinking, dict) and thinking.get("display") == "omitted":
        options = replace(options, show=False)
    effort = None if output is None else output.string("effort")
    if effort is None:
        return options, []
    if not options.enabled or effort not in EFFORTS or options.effort is not None:
        return options, ["output_config.effort"]
    return reasoning_options(options.enabled, effort, options.budget_tokens, show=options.show), []


def _read_output_format(fields: Fields) -> OutputFormat | None:
    """`output_config.format`, or `output_format` as it was called in the beta. Every schema here is strict."""
    output = fields.object("output_config")
    form = None if output is None else output.object("format")
    form = form or fields.object("output_format")
    if form is None:
        return None
    if form.require("type") != "json_schema":
        raise form.fail("type", "must be json_schema", form.get("type"))
    schema = form.object("schema")
    if schema is None:
        raise form.fail("schema", "is required")
    return OutputFormat("json_schema", dict(schema.data), strict=True, param=schema.path)


def encode_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def encode_message(head: ReplyHead, usage: Usage) -> dict[str, Any]:
    """A message that has no content yet."""
    return {
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": encode_usage(usage),
    }


def encode_response(head: ReplyHead, reply: Reply) -> dict[str, Any]:
    """The message object. Raises RequestCancelledError where the answer was cut off: it must not look whole."""
    choice = reply.choices[0]
    if choice.finish_reason == "cancelled":
        raise RequestCancelledError("The server is shutting down.")
    content = [_encode_part(part) for part in choice.parts if part.kind == "tool_call" or part.text]
    return encode_message(head, reply.usage) | {"content": content} | _stop_of_choice(choice)


def _stop_of_choice(choice: Choice) -> dict[str, Any]:
    has_calls = any(part.kind == "tool_call" for part in choice.parts)
    return encode_stop(choice.finish_reason, choice.matched_stop, has_calls=has_calls)


def encode_stop(reason: str | None, matched: str | int | None, *, has_calls: bool) -> dict[str, Any]:
    """Why the answer ended. A client runs calls when it reads tool_use, also where one named tool had to be called."""
    sequence = matched if isinstance(matched, str) else None
    if reason == "length":
        stop_reason = "max_tokens"
    elif has_calls:
        stop_reason = "tool_use"
    else:
        stop_reason = "end_turn" if sequence is None else "stop_sequence"
    return {"stop_reason": stop_reason, "stop_sequence": sequence}


def _encode_part(part: ReplyPart) -> dict[str, Any]:
    if part.kind == "reasoning":
        return {"type": "thinking", "thinking": part.text, "signature": signature_of(part.text)}
    if part.kind == "tool_call":
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": _input_of(part.text)}
    return {"type": "text", "text": part.text}


def _input_of(arguments: str) -> orjson.Fragment | dict[str, Any]:
    """The argument text as it stands, so that no number or order of keys changes; it is an object already."""
    return orjson.Fragment(arguments) if arguments.strip() else {}


def signature_of(thinking: str) -> str:
    """What stands where Anthropic signs a thinking block: the same for the same text. Any signature is accepted back."""
    return base64.b64encode(hashlib.sha256(thinking.encode()).digest()).decode()
