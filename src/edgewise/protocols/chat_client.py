"""Chat completions from the client's side: a ChatRequest as a request body. The reply is read in `chat_replies`.

A freeform tool goes out as the function that models are shown for it, so any server can take it; turning its calls back is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from edgewise.core.chat import (
    ChatRequest,
    MediaPart,
    Message,
    ReasoningOptions,
    TextPart,
    ToolCall,
    ToolChoice,
)
from edgewise.core.chat import ToolDefinition as Tool
from edgewise.core.grammar import OutputFormat
from edgewise.protocols.media import chat_part

_SAMPLING_UNMET = ("logprobs", "prompt_logprobs")
_CONSTRAINTS = {
    "regex": "regex",
    "choice": "choice",
    "lark": "grammar",
    "gbnf": "grammar",
    "structural_tag": "structural_tag",
}


def encode_request(request: ChatRequest, *, model: str) -> dict[str, Any]:
    """The body of a chat completion that asks the same. `model`: the name to send."""
    body: dict[str, Any] = {"model": model, "messages": [encode_message(m) for m in request.messages]}
    tools = offered(request.tools, request.tool_choice)
    if tools:
        body["tools"] = [_encode_tool(tool) for tool in tools]
        body["tool_choice"] = _encode_choice(request.tool_choice)
        if not request.tool_choice.parallel:
            body["parallel_tool_calls"] = False
    body |= _encode_sampling(request.sampling)
    if request.output_format is not None:
        body |= encode_format(request.output_format)
    body |= _encode_reasoning(request.reasoning, request.template_kwargs)
    if request.stream:
        body["stream"] = True
        if request.include_usage:
            body["stream_options"] = {"include_usage": True}
    return body | _encode_flags(request)


def _encode_flags(request: ChatRequest) -> dict[str, Any]:
    """Fields that stand for something only where they differ from what is usual."""
    flags: dict[str, Any] = {}
    if request.continue_final_message:
        flags |= {"continue_final_message": True, "add_generation_prompt": False}
    elif not request.add_generation_prompt:
        flags["add_generation_prompt"] = False
    elif request.messages[-1].role == "assistant":
        flags["add_generation_prompt"] = True
    if not request.apply_chat_template:
        flags["apply_chat_template"] = False
    if not request.reuse_context:
        flags["reuse_context"] = False
    if not request.cache_generated_tokens:
        flags["cache_generated_tokens"] = False
    if request.priority:
        flags["priority"] = request.priority
    if request.cache_salt:
        flags["cache_salt"] = request.cache_salt
    return flags


def encode_message(message: Message) -> dict[str, Any]:
    encoded: dict[str, Any] = {"role": message.role, "content": _encode_content(message)}
    if message.name:
        encoded["name"] = message.name
    if message.reasoning:
        encoded["reasoning_content"] = message.reasoning
    if message.tool_calls:
        encoded["tool_calls"] = [_encode_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        encoded["tool_call_id"] = message.tool_call_id
    return encoded


def _encode_content(message: Message) -> str | list[dict[str, Any]] | None:
    """One text is a string, which every server reads; none at all is null beside calls."""
    parts = message.parts
    if not parts:
        return None if message.tool_calls else ""
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return [
        chat_part(part) if isinstance(part, MediaPart) else {"type": "text", "text": part.text}
        for part in parts
    ]


def _encode_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": argument_text(call.arguments)},
    }


def argument_text(arguments: str | Mapping[str, Any] | None) -> str:
    """Arguments as text: what was text stays as it is, broken or not."""
    if isinstance(arguments, str):
        return arguments
    return orjson.dumps(arguments or {}).decode()


def offered(tools: Iterable[Tool], choice: ToolChoice) -> list[Tool]:
    """The tools that may be called. A choice among several has no word that all servers know, so the others are not offered."""
    names = None if choice.named else choice.names
    return [tool for tool in tools if names is None or tool.name in names]


def _encode_tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _encode_choice(choice: ToolChoice) -> str | dict[str, Any]:
    if choice.named and choice.names:
        return {"type": "function", "function": {"name": choice.names[0]}}
    return choice.mode


def _encode_sampling(sampling: Mapping[str, Any]) -> dict[str, Any]:
    body = {name: value for name, value in sampling.items() if name not in _SAMPLING_UNMET}
    if "logit_bias" in body:
        body["logit_bias"] = {str(token): amount for token, amount in body["logit_bias"].items()}
    if (count := sampling.get("logprobs")) is not None:
        body["logprobs"] = True
        if count:
            body["top_logprobs"] = count
    if (count := sampling.get("prompt_logprobs")) is not None:
        body["prompt_logprobs"] = count
    return body


def encode_format(output: OutputFormat) -> dict[str, Any]:
    """Structured output: OpenAI's field where it has a word for it, vLLM's for the rest."""
    match output.kind:
        case "json_object":
            return {"response_format": {"type": "json_object"}}
        case "json_schema":
            envelope = {"name": output.name or "answer", "schema": output.value, "strict": output.strict}
            return {"response_format": {"type": "json_schema", "json_schema": envelope}}
        case kind:
            value = list(output.value) if kind == "choice" else output.value
            return {"structured_outputs": {_CONSTRAINTS[kind]: value}}


def _encode_reasoning(options: ReasoningOptions, template_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The switch as a variable of the template, which llama-server and vLLM read, effort and budget under their own names."""
    body: dict[str, Any] = {}
    variables = dict(template_kwargs)
    if "documents" in variables:
        body["documents"] = variables.pop("documents")
    if options.enabled is not None:
        variables["enable_thinking"] = options.enabled
    if variables:
        body["chat_template_kwargs"] = variables
    if options.effort is not None:
        body["reasoning_effort"] = options.effort
    if options.budget_tokens is not None:
        body["thinking_token_budget"] = options.budget_tokens
    if not options.show:
        body["include_reasoning"] = False
    return body
