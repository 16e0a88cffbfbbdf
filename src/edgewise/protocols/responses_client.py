"""The Responses API from the client's side: a ChatRequest as a request body. The reply is read in `responses_replies`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from edgewise.core.chat import (
    CUSTOM_INPUT,
    ChatRequest,
    MediaPart,
    Message,
    ReasoningOptions,
    ToolCall,
    ToolChoice,
)
from edgewise.core.chat import ToolDefinition as Tool
from edgewise.core.grammar import OutputFormat
from edgewise.protocols.chat_client import argument_text, encode_format
from edgewise.protocols.media import responses_part

_RENAMED = {"max_tokens": "max_output_tokens", "logprobs": "top_logprobs"}


def encode_request(request: ChatRequest, *, model: str) -> dict[str, Any]:
    """The body of a Responses request that asks the same, and asks for nothing to be kept. `model`: the name to send."""
    tools = {tool.name: tool for tool in request.tools}
    body: dict[str, Any] = {
        "model": model,
        "input": [item for message in request.messages for item in _items(message, tools)],
        "store": False,
    }
    if request.tools:
        body["tools"] = list(_encode_tools(request.tools))
        body["tool_choice"] = _encode_choice(request.tool_choice, tools)
        body["parallel_tool_calls"] = request.tool_choice.parallel
    for name, value in request.sampling.items():
        if name == "n":  # a response is one answer
            continue
        body[_RENAMED.get(name, name)] = value
    if "logit_bias" in body:
        body["logit_bias"] = {str(token): amount for token, amount in body["logit_bias"].items()}
    if request.sampling.get("logprobs") == 0:
        body["include"] = ["message.output_text.logprobs"]
    if request.output_format is not None:
        body |= _encode_format(request.output_format)
    body |= _encode_reasoning(request.reasoning, request.template_kwargs)
    if request.stream:
        body["stream"] = True
    if not request.reuse_context:
        body["reuse_context"] = False
    if request.priority:
        body["priority"] = request.priority
    if request.cache_salt:
        body["cache_salt"] = request.cache_salt
    return body


def _items(message: Message, tools: Mapping[str, Tool]) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        yield _encode_output(message)
        return
    if message.reasoning:
        thought = {"type": "reasoning_text", "text": message.reasoning}
        yield {"type": "reasoning", "summary": [], "content": [thought]}
    kind = "output_text" if message.role == "assistant" else "input_text"
    content = [
        responses_part(part) if isinstance(part, MediaPart) else {"type": kind, "text": part.text}
        for part in message.parts
    ]
    if content or not (message.tool_calls or message.reasoning):
        yield {"type": "message", "role": message.role, "content": content}
    for call in message.tool_calls:
        yield _encode_call(call, tools.get(call.name))


def _encode_output(message: Message) -> dict[str, Any]:
    output: str | list[dict[str, Any]] = message.text
    if len(message.parts) != 1 or isinstance(message.parts[0], MediaPart):
        output = [
            responses_part(part) if isinstance(part, MediaPart) else {"type": "input_text", "text": part.text}
            for part in message.parts
        ]
    return {"type": "function_call_output", "call_id": message.tool_call_id or "", "output": output}


def _encode_call(call: ToolCall, tool: Tool | None) -> dict[str, Any]:
    head: dict[str, Any] = {
        "call_id": call.id,
        "name": call.name if tool is None else tool.local_name or tool.name,
    }
    if tool is not None and tool.namespace:
        head["namespace"] = tool.namespace
    if tool is not None and tool.kind == "custom" and (text := _custom_input(call)) is not None:
        return {"type": "custom_tool_call", **head, "input": text}
    return {"type": "function_call", **head, "arguments": argument_text(call.arguments)}


def _custom_input(call: ToolCall) -> str | None:
    """The text of a freeform call; None where the arguments hold none."""
    arguments: object = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return None
    text = arguments.get(CUSTOM_INPUT) if isinstance(arguments, dict) else None
    return text if isinstance(text, str) else None


def _encode_tools(tools: Sequence[Tool]) -> Iterator[dict[str, Any]]:
    """Tools of one namespace that stand together share its container."""
    container: dict[str, Any] | None = None
    for tool in tools:
        if not tool.namespace:
            container = None
            yield _encode_tool(tool)
        elif container is not None and container["name"] == tool.namespace:
            container["tools"].append(_encode_tool(tool))
        else:
            if container is not None:
                yield container
            container = {"type": "namespace", "name": tool.namespace, "tools": [_encode_tool(tool)]}
            yield container


def _encode_tool(tool: Tool) -> dict[str, Any]:
    encoded: dict[str, Any] = {"type": tool.kind, "name": tool.local_name or tool.name}
    description = tool.description
    if tool.kind == "custom":
        if tool.custom_format is not None:
            encoded["format"] = tool.custom_format
            raw = tool.raw.get("custom", tool.raw)
            description = raw.get("description") if isinstance(raw, dict) else None
    else:
        encoded["parameters"] = tool.parameters
        if tool.strict is not None:
            encoded["strict"] = tool.strict
    if description is not None:
        encoded["description"] = description
    return encoded


def _encode_choice(choice: ToolChoice, tools: Mapping[str, Tool]) -> str | dict[str, Any]:
    if not choice.names:
        return choice.mode
    named = [
        {"type": tools[name].kind if name in tools else "function", "name": name} for name in choice.names
    ]
    return named[0] if choice.named else {"type": "allowed_tools", "mode": choice.mode, "tools": named}


def _encode_format(output: OutputFormat) -> dict[str, Any]:
    match output.kind:
        case "json_object":
            return {"text": {"format": {"type": "json_object"}}}
        case "json_schema":
            name = {"name": output.name or "answer"}
            form = {"type": "json_schema", **name, "schema": output.value, "strict": output.strict}
            return {"text": {"format": form}}
        case _:
            return encode_format(output)


def _encode_reasoning(options: ReasoningOptions, template_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    variables = dict(template_kwargs)
    if options.enabled is not None:
        variables["enable_thinking"] = options.enabled
    if variables:
        body["chat_template_kwargs"] = variables
    if options.effort is not None:
        body["reasoning"] = {"effort": options.effort}
    if options.budget_tokens is not None:
        body["thinking_token_budget"] = options.budget_tokens
    if not options.show:
        body["include_reasoning"] = False
    return body
