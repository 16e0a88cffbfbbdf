"""POST /v1/responses: the request as Codex and OpenAI's packages send it.

The answer, streamed or in one piece, is made in `responses_stream`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from edgewise.core.chat import ChatRequest, ToolChoice, ToolDefinition
from edgewise.core.errors import InvalidRequestError
from edgewise.core.grammar import OutputFormat
from edgewise.core.sampling import MAX_LOGPROBS
from edgewise.protocols.chat import read_template_kwargs
from edgewise.protocols.fields import Fields, read_cache_salt
from edgewise.protocols.reasoning_fields import read_reasoning
from edgewise.protocols.reply import ReplyOptions
from edgewise.protocols.responses_input import EARLIER_INDEX, Conversation, own_items, tools_in_items
from edgewise.protocols.responses_tools import OfferedTools, read_tool_choice
from edgewise.protocols.sampling import check_sampling, read_max_tokens, read_sampling, refuse_unavailable
from edgewise.protocols.structured import ignored_options, read_output_format

_ECHOED = ("metadata", "prompt_cache_key", "safety_identifier", "service_tier", "user", "max_tool_calls")
"""Fields without effect here that a response repeats."""
_REFUSED = {
    "prompt": "is kept on OpenAI's servers and cannot be used here; send instructions and input",
    "conversation": "is not available here; use previous_response_id, or send the whole input",
}


class Earlier(Protocol):
    """Responses made before, as a request may refer to them."""

    def context_of(self, response_id: str, /) -> Sequence[dict[str, Any]] | None:
        """The items of a response's input and output, earlier ones first; None when there is no such response."""
        ...

    def item(self, item_id: str, /) -> dict[str, Any] | None: ...


class NothingEarlier:
    """Where nothing is stored."""

    def context_of(self, response_id: str, /) -> None:
        return None

    def item(self, item_id: str, /) -> None:
        return None


@dataclass(frozen=True, slots=True)
class ResponseOptions(ReplyOptions):
    """How a response is to look, and what it has to repeat.

    `constant` holds the fields of the response object that the request fixes; `items` is the whole input, earlier items first.
    """

    constant: Mapping[str, Any] = field(default_factory=dict)
    items: tuple[Any, ...] = ()
    tools: Mapping[str, ToolDefinition] = field(default_factory=dict)  # by the model's name
    store: bool = True
    shows_summaries: bool = False
    carries_reasoning: bool = False  # reasoning goes along in encrypted_content


@dataclass(frozen=True, slots=True)
class ParsedResponse:
    chat: ChatRequest
    reply: ResponseOptions


def parse_request(body: object, earlier: Earlier | None = None) -> ParsedResponse:
    """A decoded JSON body -> what it asks. Raises InvalidRequestError with the dotted `param`."""
    fields = Fields.of(body, "")
    refuse_unavailable(fields)
    _refuse_here(fields)
    before = earlier_items(fields, earlier := earlier or NothingEarlier())
    own = own_items(fields)
    tools = OfferedTools()
    tools.add_all(fields.array("tools") or (), "tools")
    tools_in_items([*before, *own], tools)
    choice = read_tool_choice(fields, tools)
    conversation = Conversation(tools, earlier.item)
    if instructions := fields.string("instructions"):
        conversation.add_instructions(instructions)
    for item in before:
        conversation.add(item, EARLIER_INDEX, "previous_response_id")
    for i, item in enumerate(own):
        conversation.add(item, i, f"input[{i}]")
    messages = conversation.finish()
    if not before and not own:
        raise fields.fail("input", "is required")
    reply = _read_reply(fields, tools, choice, (*before, *own))
    chat = ChatRequest(
        messages=messages,
        model=fields.string("model") or "",
        sampling=_read_sampling(fields, reply),
        tools=tools.definitions,
        tool_choice=choice,
        output_format=_read_format(fields),
        reasoning=read_reasoning(fields),
        stream=reply.stream,
        include_usage=True,
        template_kwargs=read_template_kwargs(fields),
        reuse_context=fields.boolean("reuse_context", True),
        priority=fields.integer("priority", low=-(2**63), high=2**63 - 1) or 0,
        cache_salt=read_cache_salt(fields),
    )
    skipped = (*tools.ignored, *conversation.ignored)
    ignored = (*fields.unread(), *skipped, *_without_effect(fields), *ignored_options(fields))
    return ParsedResponse(replace(chat, ignored_fields=ignored), reply)


def _refuse_here(fields: Fields) -> None:
    for name, reason in _REFUSED.items():
        if fields.get(name):
            raise fields.fail(name, reason)
    if fields.boolean("background"):
        raise fields.fail("background", "is not available here; a response is made while its client waits")
    if fields.get("chat_template"):
        raise fields.fail("chat_template", "in a request is not allowed on this server")


def earlier_items(fields: Fields, earlier: Earlier) -> Sequence[dict[str, Any]]:
    """The context of the response that a request follows. Raises InvalidRequestError where there is no such response."""
    previous = fields.string("previous_response_id")
    if not previous:
        return ()
    if (items := earlier.context_of(previous)) is None:
        raise InvalidRequestError(
            f"Previous response with id '{previous}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return items


def _without_effect(fields: Fields) -> list[str]:
    """Fields that were read but whose wish cannot be met."""
    names = ["truncation"] if fields.get("truncation") == "auto" else []
    text = fields.object("text")
    return names + (["text.verbosity"] if text is not None and text.get("verbosity") else [])


def _read_format(fields: Fields) -> OutputFormat | None:
    """`text.format`, or one of the other APIs' names for a constraint. Raises InvalidRequestError where there are two."""
    own, other = _text_format(fields), read_output_format(fields)
    if own is not None and other is not None:
        raise fields.fail(other.param, "and text.format both ask for a form of the answer; give one of them")
    return own or other


def _text_format(fields: Fields) -> OutputFormat | None:
    text = fields.object("text")
    given = None if text is None else text.object("format")
    if given is None:
        return None
    kind = given.require("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return OutputFormat("json_object", param="text.format")
    if kind != "json_schema":
        raise given.fail("type", "must be text, json_object or json_schema", kind)
    inner = given.object("json_schema") or given  # the nested shape of chat completions
    schema = inner.get("schema")
    if not isinstance(schema, dict | bool):
        raise inner.fail("schema", "must be a JSON schema")
    return OutputFormat(
        "json_schema",
        schema,
        strict=inner.boolean("strict"),
        param=inner.name("schema"),
        name=inner.string("name") or "",
    )


def _read_sampling(fields: Fields, reply: ResponseOptions) -> dict[str, Any]:
    sampling = read_sampling(fields)
    if sampling.pop("n", 1) != 1:
        raise fields.fail("n", "must be 1; a response is one answer")
    if (limit := read_max_tokens(fields, "max_output_tokens", "max_tokens", low=1)) is not None:
        sampling["max_tokens"] = limit
    if reply.logprobs is not None:
        sampling["logprobs"] = reply.logprobs
    check_sampling(sampling)
    return sampling


def _read_reply(
    fields: Fields, tools: OfferedTools, choice: ToolChoice, items: tuple[Any, ...]
) -> ResponseOptions:
    include = fields.strings("include") or []
    top = fields.integer("top_logprobs", low=0, high=MAX_LOGPROBS)
    wants_logprobs = bool(top) or "message.output_text.logprobs" in include
    reasoning = fields.object("reasoning")
    summary = None if reasoning is None else (reasoning.get("summary") or reasoning.get("generate_summary"))
    if (options := fields.object("stream_options")) is not None:
        options.get("include_obfuscation")
    return ResponseOptions(
        stream=fields.boolean("stream"),
        include_usage=True,
        logprobs=(top or 0) if wants_logprobs else None,
        stream_interval=fields.integer("stream_interval", low=1) or 1,
        constant=_constant(fields, choice),
        items=items,
        tools=dict(tools.by_model_name),
        store=fields.boolean("store", True),
        shows_summaries=summary is not None,
        carries_reasoning="reasoning.encrypted_content" in include,
    )


def _constant(fields: Fields, choice: ToolChoice) -> dict[str, Any]:
    """What a response object repeats of its request."""
    text = fields.object("text")
    reasoning = fields.object("reasoning")
    return {
        "background": False,
        "instructions": fields.string("instructions"),
        "max_output_tokens": fields.integer("max_output_tokens"),
        "parallel_tool_calls": choice.parallel,
        "previous_response_id": fields.string("previous_response_id"),
        "reasoning": {"effort": None, "summary": None} | _given(reasoning),
        "store": fields.boolean("store", True),
        "temperature": fields.number("temperature"),
        "text": {"format": {"type": "text"}} | _given(text),
        "tool_choice": fields.get("tool_choice") or "auto",
        "tools": fields.array("tools") or [],
        "top_logprobs": fields.integer("top_logprobs") or 0,
        "top_p": fields.number("top_p"),
        "truncation": fields.string("truncation") or "disabled",
        **{name: fields.get(name) for name in _ECHOED},
    }


def _given(fields: Fields | None) -> dict[str, Any]:
    return {} if fields is None else {key: value for key, value in fields.data.items() if value is not None}
