"""What the three APIs say about calls, results and tokens, read off the wire without the code under test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tests.clients.recorder import Exchange


@dataclass(frozen=True)
class Turn:
    """A call made or a result given, by the call's id."""

    kind: Literal["call", "result"]
    call_id: str
    name: str = ""


@dataclass(frozen=True)
class Tokens:
    """Of one answer."""

    prompt: int
    cached: int
    completion: int


def history(exchange: Exchange) -> list[Turn]:
    """Every call and result of a request's conversation, in order."""
    body = exchange.request
    if exchange.path == "/v1/responses":
        return [turn for item in body["input"] if (turn := _item(item))]
    read = _anthropic if exchange.path == "/v1/messages" else _chat
    return [turn for message in body["messages"] for turn in read(message)]


def _item(item: dict[str, Any]) -> Turn | None:
    kind = item.get("type", "")
    if kind in ("function_call", "custom_tool_call"):
        return Turn("call", item["call_id"], item["name"])
    return Turn("result", item["call_id"]) if kind.endswith("_call_output") else None


def _anthropic(message: dict[str, Any]) -> Iterator[Turn]:
    for block in message["content"] if isinstance(message["content"], list) else ():
        if block["type"] == "tool_use":
            yield Turn("call", block["id"], block["name"])
        elif block["type"] == "tool_result":
            yield Turn("result", block["tool_use_id"])


def _chat(message: dict[str, Any]) -> Iterator[Turn]:
    for call in message.get("tool_calls") or ():
        yield Turn("call", call["id"], call["function"]["name"])
    if message["role"] == "tool":
        yield Turn("result", message["tool_call_id"])


def tokens_of(exchange: Exchange) -> Tokens | None:
    """The usage a stream ends with; None where it did not end."""
    for event in reversed(exchange.events):
        if event.get("type") == "message_delta" and not event["delta"]["stop_reason"]:
            continue  # a sign of life
        usage = event.get("usage") or event.get("response", {}).get("usage")
        if usage:
            return _tokens(usage)
    return None


def _tokens(usage: dict[str, Any]) -> Tokens:
    if "cache_read_input_tokens" in usage:
        cached = usage["cache_read_input_tokens"]
        return Tokens(usage["input_tokens"] + cached, cached, usage["output_tokens"])
    if "input_tokens" in usage:
        cached = usage["input_tokens_details"]["cached_tokens"]
        return Tokens(usage["input_tokens"], cached, usage["output_tokens"])
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return Tokens(usage["prompt_tokens"], cached, usage["completion_tokens"])


def answer_id(exchange: Exchange) -> str:
    """The id of the answer, which is the request's inside the server."""
    first = exchange.events[0]
    return str((first.get("message") or first.get("response") or first)["id"])


def tool_names(exchange: Exchange) -> list[str]:
    """The tools a request offers, by whatever name they have."""
    tools = exchange.request.get("tools") or ()
    return [tool.get("name") or tool.get("function", {}).get("name") or tool["type"] for tool in tools]
