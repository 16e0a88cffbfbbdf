"""The Messages API from the client's side: a ChatRequest as a request body. The reply is read in `messages_replies`.

Results of calls come before the text of the user's turn that brings them, as this API wants it, in one turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from edgewise.core.chat import ChatRequest, MediaPart, Message, ReasoningOptions, ToolCall, ToolChoice
from edgewise.core.chat import ToolDefinition as Tool
from edgewise.protocols.anthropic import signature_of
from edgewise.protocols.chat_client import offered
from edgewise.protocols.media import messages_block

DEFAULT_MAX_TOKENS = 8192
"""This API wants a limit; what it is where a request has none."""
BROKEN_ARGUMENTS = "broken_arguments"
"""The key under which argument text that is no JSON object travels: `input` has to be one."""

_SAMPLING = ("temperature", "top_p", "top_k", "seed")


def encode_request(request: ChatRequest, *, model: str) -> dict[str, Any]:
    """The body of a Messages request that asks the same. `model`: the name to send."""
    system, turns = _split(request.messages)
    body: dict[str, Any] = {"model": model, "messages": _encode_turns(turns)}
    body["max_tokens"] = request.sampling.get("max_tokens", DEFAULT_MAX_TOKENS)
    if system:
        body["system"] = [block for message in system for block in _blocks(message)]
    tools = offered(request.tools, request.tool_choice)
    if tools:
        body["tools"] = [_encode_tool(tool) for tool in tools]
        body["tool_choice"] = _encode_choice(request.tool_choice)
    body |= {name: request.sampling[name] for name in _SAMPLING if name in request.sampling}
    if stop := request.sampling.get("stop"):
        body["stop_sequences"] = stop
    body |= _encode_reasoning(request.reasoning)
    if request.output_format is not None and request.output_format.kind == "json_schema":
        form = {"type": "json_schema", "schema": request.output_format.value}
        body["output_config"] = {**body.get("output_config", {}), "format": form}
    if request.stream:
        body["stream"] = True
    return body | _encode_flags(request)


def _encode_flags(request: ChatRequest) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    if request.template_kwargs:
        flags["chat_template_kwargs"] = request.template_kwargs
    if request.priority:
        flags["priority"] = request.priority
    if request.cache_salt:
        flags["cache_salt"] = request.cache_salt
    return flags


def _split(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
    """The system messages at the head, and the rest."""
    first = next((i for i, m in enumerate(messages) if m.role not in ("system", "developer")), len(messages))
    return messages[:first], messages[first:]


def _encode_turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            results.append(_encode_result(message))
        elif message.role == "user":
            turns.append({"role": "user", "content": [*results, *_blocks(message)]})
            results = []
        else:
            if results:
                turns.append({"role": "user", "content": results})
                results = []
            turns.append(_encode_turn(message))
    if results:
        turns.append({"role": "user", "content": results})
    return turns


def _encode_turn(message: Message) -> dict[str, Any]:
    if message.role != "assistant":
        return {"role": "system", "content": _blocks(message)}
    content: list[dict[str, Any]] = []
    if message.reasoning:
        signature = signature_of(message.reasoning)
        content.append({"type": "thinking", "thinking": message.reasoning, "signature": signature})
    content += _blocks(message)
    content += [_encode_call(call) for call in message.tool_calls]
    return {"role": "assistant", "content": content}


def _blocks(message: Message) -> list[dict[str, Any]]:
    """A message's parts as blocks, without empty texts, which the API refuses."""
    return [
        messages_block(part) if isinstance(part, MediaPart) else {"type": "text", "text": part.text}
        for part in message.parts
        if isinstance(part, MediaPart) or part.text
    ]


def _encode_result(message: Message) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": message.tool_call_id or "", "content": _blocks(message)}


def _encode_call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": argument_object(call.arguments)}


def argument_object(arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """Arguments as an object; what is none travels under a key of its own, so that it is not lost."""
    if not isinstance(arguments, str):
        return dict(arguments or {})
    if not arguments.strip():
        return {}
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {BROKEN_ARGUMENTS: arguments}


def _encode_tool(tool: Tool) -> dict[str, Any]:
    encoded: dict[str, Any] = {"name": tool.name, "input_schema": tool.parameters or {"type": "object"}}
    if tool.description is not None:
        encoded["description"] = tool.description
    if tool.strict is not None:
        encoded["strict"] = tool.strict
    return encoded


def _encode_choice(choice: ToolChoice) -> dict[str, Any]:
    if choice.named and choice.names:
        encoded: dict[str, Any] = {"type": "tool", "name": choice.names[0]}
    else:
        encoded = {"type": "any" if choice.mode == "required" else choice.mode}
    return encoded if choice.parallel else {**encoded, "disable_parallel_tool_use": True}


def _encode_reasoning(options: ReasoningOptions) -> dict[str, Any]:
    if options.enabled is None:
        return {}
    if not options.enabled:
        return {"thinking": {"type": "disabled"}}
    if options.budget_tokens is None:
        thinking: dict[str, Any] = {"type": "adaptive"}
    else:
        thinking = {"type": "enabled", "budget_tokens": options.budget_tokens}
    if not options.show:
        thinking["display"] = "omitted"
    body: dict[str, Any] = {"thinking": thinking}
    if options.effort is not None:
        body["output_config"] = {"effort": options.effort}
    return body
