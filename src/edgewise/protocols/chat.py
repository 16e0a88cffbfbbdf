"""POST /v1/chat/completions: the request as OpenAI and vLLM clients send it, the reply in one piece.

The stream of chunks is in `chat_stream`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from edgewise.core.chat import ChatRequest
from edgewise.core.sampling import MAX_LOGPROBS, UNLIMITED
from edgewise.protocols.fields import Fields, read_cache_salt
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.messages import read_messages, trailing_turn
from edgewise.protocols.reasoning_fields import read_reasoning
from edgewise.protocols.reply import (
    Choice,
    PromptEcho,
    Reply,
    ReplyHead,
    ReplyOptions,
    ReplyPart,
    encode_timings,
    encode_usage,
    read_reply_options,
)
from edgewise.protocols.sampling import check_sampling, read_max_tokens, read_sampling, refuse_unavailable
from edgewise.protocols.structured import ignored_options, read_output_format
from edgewise.protocols.tools import read_tools

MAX_TEMPLATE_CHARS = 1 << 18
_RESERVED_KWARGS = ("messages", "tools", "chat_template", "tokenize")


@dataclass(frozen=True, slots=True)
class ParsedChat:
    """A chat request and what its reply has to look like."""

    chat: ChatRequest
    reply: ReplyOptions


def parse_request(body: object, *, trust_template: bool = False) -> ParsedChat:
    """A decoded JSON body -> what it asks. Raises InvalidRequestError with the dotted `param`.

    `trust_template`: the request may bring a chat template of its own.
    """
    fields = Fields.of(body, "")
    refuse_unavailable(fields)
    _refuse_modalities(fields)
    messages, opens, continues = trailing_turn(read_messages(fields), fields)
    asked = read_tools(fields)
    sampling, reply = _read_sampling_and_reply(fields)
    chat = ChatRequest(
        messages=messages,
        model=fields.string("model") or "",
        sampling=sampling,
        tools=asked.tools,
        tool_choice=asked.choice,
        output_format=read_output_format(fields),
        reasoning=read_reasoning(fields),
        stream=reply.stream,
        include_usage=reply.include_usage,
        add_generation_prompt=opens,
        continue_final_message=continues,
        apply_chat_template=fields.boolean("apply_chat_template", True),
        chat_template=_read_template(fields, trust_template),
        template_kwargs=read_template_kwargs(fields),
        reuse_context=fields.boolean("reuse_context", True),
        cache_generated_tokens=fields.boolean("cache_generated_tokens", True),
        priority=fields.integer("priority", low=-(2**63), high=2**63 - 1) or 0,
        cache_salt=read_cache_salt(fields),
        extra={"add_special_tokens": fields.boolean("add_special_tokens")},
    )
    ignored = (*ignored_options(fields), *fields.unread())
    return ParsedChat(replace(chat, ignored_fields=ignored), replace(reply, legacy_calls=asked.legacy))


def _read_sampling_and_reply(fields: Fields) -> tuple[dict[str, Any], ReplyOptions]:
    sampling = read_sampling(fields)
    if (limit := read_max_tokens(fields, "max_completion_tokens", "max_tokens", low=1)) is not None:
        sampling["max_tokens"] = limit
    logprobs = _read_logprobs(fields)
    reply = replace(read_reply_options(fields, sampling), logprobs=logprobs)
    sampling |= _engine_logprobs(reply)
    check_sampling(sampling)
    return sampling, reply


def _refuse_modalities(fields: Fields) -> None:
    for i, modality in enumerate(fields.strings("modalities") or ()):
        if modality != "text":
            raise fields.fail(f"modalities[{i}]", "must be text; this model makes nothing else", modality)


def _read_template(fields: Fields, trusted: bool) -> str | None:
    template = fields.string("chat_template", max_len=MAX_TEMPLATE_CHARS) or None
    if template is not None and not trusted:
        raise fields.fail("chat_template", "in a request is not allowed on this server")
    return template


def _read_logprobs(fields: Fields) -> int | None:
    """Alternatives per token: `logprobs` says whether, `top_logprobs` how many (-1: the whole vocabulary)."""
    wanted = fields.boolean("logprobs")
    top = fields.integer("top_logprobs", low=UNLIMITED, high=MAX_LOGPROBS)
    if top and not wanted:
        raise fields.fail("top_logprobs", "needs logprobs to be true")
    return (top or 0) if wanted else None


def _engine_logprobs(reply: ReplyOptions) -> dict[str, int]:
    """What the engine has to compute: what is shown, and the chosen token's where choices are ranked."""
    if reply.logprobs is not None:
        return {"logprobs": reply.logprobs}
    return {"logprobs": 0} if reply.best_of > reply.num_choices else {}


def read_template_kwargs(fields: Fields) -> dict[str, Any]:
    kwargs: dict[str, Any] = {}
    if (given := fields.object("chat_template_kwargs")) is not None:
        for name in _RESERVED_KWARGS:
            if name in given.data:
                raise given.fail(name, "is reserved and cannot be set")
        kwargs = {name: value for name, value in given.data.items() if value not in (None, "auto")}
    if (documents := fields.array("documents")) is not None:
        kwargs["documents"] = documents
    return kwargs


def encode_response(
    head: ReplyHead, options: ReplyOptions, reply: Reply, writer: LogprobWriter, prompt: PromptEcho
) -> dict[str, Any]:
    """The `chat.completion` object. `prompt.text` is the continued assistant text, repeated when `echo` is asked."""
    shown = reply.best(options.num_choices)
    body: dict[str, Any] = {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [_encode_choice(i, choice, options, writer, prompt) for i, choice in enumerate(shown)],
        "usage": encode_usage(reply.usage),
        **encode_timings(reply.timings, reply.usage),
    }
    if options.prompt_logprobs and prompt.logprobs is not None:
        body["prompt_logprobs"] = writer.prompt(prompt.logprobs)
    if options.token_ids:
        body["prompt_token_ids"] = list(prompt.token_ids)
    return body


def _encode_choice(
    index: int, choice: Choice, options: ReplyOptions, writer: LogprobWriter, prompt: PromptEcho
) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "index": index,
        "message": _encode_message(choice, prompt.text if options.echo else "", options.legacy_calls),
        "logprobs": None if options.logprobs is None else writer.chat(choice.logprobs),
        "finish_reason": finish_reason(choice.finish_reason, options.legacy_calls),
        "stop_reason": choice.matched_stop,
    }
    if options.token_ids:
        encoded["token_ids"] = choice.token_ids
    return encoded


def finish_reason(reason: str | None, legacy_calls: bool) -> str | None:
    """The reason under the name of the API that was used: before `tools`, a call had its own."""
    return "function_call" if legacy_calls and reason == "tool_calls" else reason


def _encode_message(choice: Choice, echoed: str, legacy_calls: bool) -> dict[str, Any]:
    content = echoed + choice.text_of("text")
    calls = [part for part in choice.parts if part.kind in ("tool_call", "custom_call")]
    message: dict[str, Any] = {"role": "assistant", "content": content if content or not calls else None}
    if reasoning := choice.text_of("reasoning"):
        message |= reasoning_fields(reasoning)
    if calls and legacy_calls:
        message["function_call"] = {"name": calls[0].name, "arguments": calls[0].text}
    elif calls:
        message["tool_calls"] = [_encode_call(part) for part in calls]
    return message


def _encode_call(part: ReplyPart) -> dict[str, Any]:
    if part.kind == "custom_call":
        return {"id": part.id, "type": "custom", "custom": {"name": part.name, "input": part.text}}
    return {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": part.text}}


def reasoning_fields(text: str) -> dict[str, str]:
    """Reasoning under vLLM's name and under the one that DeepSeek and llama.cpp gave it: clients read one or the other."""
    return {"reasoning": text, "reasoning_content": text}
