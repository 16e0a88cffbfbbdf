"""The imitation's /v1/messages: Anthropic's body as a chat body, and answers in Anthropic's shape."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from tests.support.edge_llm_answers import Answered
from tests.support.edge_llm_model import tokens_of
from tests.support.edge_llm_rules import Rules, invalid

if TYPE_CHECKING:
    from tests.support.edge_llm_server import EdgeLlmServer

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_TYPES = {413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error"}
_PROPER_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


def error_object(status: int, message: str, rules: Rules) -> dict[str, Any]:
    kinds = _TYPES if rules.messages_errors_untyped else _TYPES | _PROPER_TYPES
    kind = kinds.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def as_chat(body: dict[str, Any], rules: Rules) -> dict[str, Any]:
    """Raises RefusedError 400 for what the adapter does not take."""
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise invalid("messages must be a list that is not empty", "messages")
    limit = body.get("max_tokens")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise invalid("max_tokens must be a positive integer", "max_tokens")
    messages: list[dict[str, Any]] = []
    if body.get("system"):
        messages.append({"role": "system", "content": _text(body["system"])})
    for i, message in enumerate(given):
        role = message.get("role")
        if rules.messages_roles_checked and role not in ("user", "assistant"):
            raise invalid(f"messages[{i}].role must be user or assistant", "messages")
        messages += _turn(role, message.get("content"), rules)
    chat = {
        "messages": messages,
        "max_tokens": limit,
        "model": body.get("model"),
        "enable_thinking": _thinks(body, rules),
    }
    chat |= {name: body[name] for name in ("temperature", "top_p", "top_k") if body.get(name) is not None}
    if body.get("stop_sequences"):
        chat["stop"] = body["stop_sequences"]
    return chat | _tools(body)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(block["text"] for block in content)


def _thinks(body: dict[str, Any], rules: Rules) -> bool:
    thinking = (body.get("thinking") or {}).get("type")
    if rules.messages_template_kwargs_ignored:
        return bool(thinking == "enabled")
    kwargs = body.get("chat_template_kwargs") or {}
    return bool(kwargs.get("enable_thinking", thinking in ("enabled", "adaptive")))


def _tools(body: dict[str, Any]) -> dict[str, Any]:
    offered = [tool for tool in body.get("tools") or () if isinstance(tool.get("input_schema"), dict)]
    if not offered:
        return {}
    functions = [
        {"name": one["name"], "description": one.get("description", ""), "parameters": one["input_schema"]}
        for one in offered
    ]
    chat: dict[str, Any] = {"tools": [{"type": "function", "function": one} for one in functions]}
    choice = body.get("tool_choice") or {"type": "auto"}
    if choice.get("type") == "tool":
        chat["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif choice.get("type") in _CHOICES:
        chat["tool_choice"] = _CHOICES[choice["type"]]
    else:
        raise invalid("tool_choice.type is unknown", "tool_choice")
    return chat | {"parallel_tool_calls": not choice.get("disable_parallel_tool_use", False)}


def _turn(role: str, content: Any, rules: Rules) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    texts, calls, results, media = [], [], [], []
    for block in content:
        match block.get("type"):
            case "text":
                texts.append(block["text"])
            case "tool_use":
                value = block.get("input", {})
                arguments = json.dumps(value) if rules.tool_input_as_string else value
                call = {"name": block["name"], "arguments": arguments}
                calls.append({"id": block["id"], "type": "function", "function": call})
            case "tool_result":
                results.append(_result(block))
            case "image":
                source = block["source"]
                url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
                media.append({"type": "image_url", "image_url": {"url": url}})
            case "thinking" | "redacted_thinking":
                pass
            case kind:
                raise invalid(f"content block type {kind!r} is not supported", "messages")
    turns = list(results)
    if texts or calls or media:
        shown: Any = "\n".join(texts)
        if media:
            shown = [{"type": "text", "text": shown}, *media]
        turns.append({"role": role, "content": shown, **({"tool_calls": calls} if calls else {})})
    return turns


def _result(block: dict[str, Any]) -> dict[str, Any]:
    content = block.get("content") or ""
    if not isinstance(content, str):
        content = "".join(one["text"] if one.get("type") == "text" else json.dumps(one) for one in content)
    text = f"[tool error] {content}" if block.get("is_error") else content
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": text}


def _parsed(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments)
    except ValueError:
        return {"__raw__": arguments}
    return value if isinstance(value, dict) else {"value": value}


def _blocks(answered: Answered) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answered.reasoning:
        blocks.append({"type": "thinking", "thinking": answered.reasoning, "signature": ""})
    if answered.text or not answered.calls:
        blocks.append({"type": "text", "text": answered.text})
    for call_id, call in answered.calls:
        value = _parsed(call.arguments)
        blocks.append({"type": "tool_use", "id": call_id, "name": call.name, "input": value})
    return blocks


def _message(answered: Answered, content: list[dict[str, Any]]) -> dict[str, Any]:
    cached = 0 if answered.rules.no_cached_tokens else answered.cached_tokens
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": answered.model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": answered.prompt_tokens - cached,
            "output_tokens": 0,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
        },
    }


def whole(answered: Answered) -> dict[str, Any]:
    message = _message(answered, _blocks(answered))
    message["stop_reason"] = _STOP_REASONS[answered.finish]
    message["usage"]["output_tokens"] = answered.num_tokens
    return message


async def stream(answered: Answered, server: EdgeLlmServer) -> AsyncIterator[bytes]:
    await asyncio.sleep(server.prefill_s * answered.num_computed)
    yield _event("message_start", {"message": _message(answered, [])})
    yield _event("ping", {})
    sent = 0
    for index, block in enumerate(_blocks(answered)):
        yield _event("content_block_start", {"index": index, "content_block": _opened(block)})
        for delta in _deltas(block):
            if server.fail_after is not None and sent >= server.fail_after:
                failure = error_object(500, "The native runtime failed.", server.rules)
                yield _event("error", {"error": failure["error"]})
                return
            sent += 1
            await asyncio.sleep(server.token_s)
            server.num_generated += 1
            yield _event("content_block_delta", {"index": index, "delta": delta})
        yield _event("content_block_stop", {"index": index})
    delta = {"stop_reason": _STOP_REASONS[answered.finish], "stop_sequence": None}
    yield _event("message_delta", {"delta": delta, "usage": {"output_tokens": answered.num_tokens}})
    if not server.rules.message_stop_missing:
        yield _event("message_stop", {})


def _opened(block: dict[str, Any]) -> dict[str, Any]:
    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}
        case "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case _:
            return {**block, "input": {}}


def _deltas(block: dict[str, Any]) -> list[dict[str, Any]]:
    match block["type"]:
        case "text":
            return [{"type": "text_delta", "text": piece} for piece in tokens_of(block["text"])]
        case "thinking":
            return [{"type": "thinking_delta", "thinking": piece} for piece in tokens_of(block["thinking"])]
        case _:
            return [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]


def _event(name: str, value: dict[str, Any]) -> bytes:
    data = json.dumps({"type": name, **value})
    return f"event: {name}\ndata: {data}\n\n".encode()
