"""Answers of the imitation on /v1/chat/completions: limits and stop strings applied, in one piece or as chunks."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.edge_llm_model import END_MARK, Called, answer, tokens_of
from tests.support.edge_llm_rules import RefusedError, Rules

if TYPE_CHECKING:
    from tests.support.edge_llm_server import EdgeLlmServer

_DEFAULT_LIMIT = 2048


@dataclass(frozen=True)
class Answered:
    """An answer cut to its limit."""

    model: str
    prompt_tokens: int
    cached_tokens: int
    text: str
    reasoning: str
    calls: tuple[tuple[str, Called], ...]  # with their ids
    num_tokens: int
    finish: str
    rules: Rules

    @property
    def num_computed(self) -> int:
        return self.prompt_tokens - self.cached_tokens

    @property
    def usage(self) -> dict[str, Any]:
        usage: dict[str, Any] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.num_tokens,
            "total_tokens": self.prompt_tokens + self.num_tokens,
        }
        if not self.rules.no_cached_tokens:
            usage["prompt_tokens_details"] = {"cached_tokens": self.cached_tokens}
        return usage


def make_answer(body: dict[str, Any], prompt: str, server: EdgeLlmServer) -> Answered:
    """Raises RefusedError for a prompt too long, or a limit above the room where that is refused."""
    rules = server.rules
    prompt_tokens = tokens_of(prompt)
    num_prompt = _checked_length(len(prompt_tokens), server)
    limit = body.get("max_tokens") or body.get("max_completion_tokens")
    if rules.limit_refused and (limit or 0) > server.window - num_prompt:
        raise RefusedError(400, "invalid_request_error", "max_tokens is too large.", "max_tokens")
    limit = min(
        limit or (_DEFAULT_LIMIT if rules.default_limit_2048 else server.window), server.window - num_prompt
    )
    said = answer(body, prompt, rules, server.script)
    text, reasoning, calls, finish = said.text, said.reasoning, said.calls, "stop"
    if calls and rules.leaked_tool_markup:
        text += "".join(_markup(call) for call in calls)
        calls = ()
    if not rules.stop_ignored:
        text = _before_stop(text, body.get("stop"))
    reasoning_tokens, text_tokens = tokens_of(reasoning), tokens_of(text)
    num_call_tokens = sum(len(tokens_of(call.name + call.arguments)) for call in calls)
    num_tokens = len(reasoning_tokens) + len(text_tokens) + num_call_tokens + 1
    if num_tokens > limit and not rules.limit_ignored:
        reasoning = "".join(reasoning_tokens[:limit])
        text = "".join(text_tokens[: max(0, limit - len(reasoning_tokens))])
        room = limit - len(reasoning_tokens) - len(text_tokens)
        calls, finish, num_tokens = _cut_calls(calls, room), "length", limit
    elif rules.leaked_end_tokens and not calls:
        text += END_MARK
    if rules.thinking_in_text and reasoning:
        text, reasoning = f"<think>\n{reasoning}\n</think>\n\n{text}", ""
    if calls and finish == "stop" and not rules.finish_hides_calls:
        finish = "tool_calls"
    named = tuple((f"call_{uuid.uuid4().hex[:24]}", call) for call in calls)
    cached = server.remember(prompt_tokens)
    return Answered(server.model, num_prompt, cached, text, reasoning, named, num_tokens, finish, rules)


def _checked_length(num_tokens: int, server: EdgeLlmServer) -> int:
    if num_tokens <= server.max_input:
        return num_tokens
    if server.rules.overlong_cut:
        return server.max_input
    if server.rules.overlong_is_413:
        raise RefusedError(413, "invalid_request_error", "EDGELLM_INPUT_TOO_LONG: the input is too long.")
    message = (
        f"This model's maximum context length is {server.max_input} tokens, the prompt has {num_tokens}."
    )
    raise RefusedError(400, "invalid_request_error", message, "messages", "context_length_exceeded")


def _before_stop(text: str, stop: Any) -> str:
    for mark in [stop] if isinstance(stop, str) else (stop or ()):
        text = text.partition(mark)[0]
    return text


def _markup(call: Called) -> str:
    return f'\n<tool_call>\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}\n</tool_call>'


def _cut_calls(calls: tuple[Called, ...], room: int) -> tuple[Called, ...]:
    """What fits into `room` tokens; the last call's arguments end in the middle."""
    kept = []
    for call in calls:
        if room <= 0:
            break
        tokens = tokens_of(call.arguments)
        kept.append(Called(call.name, "".join(tokens[:room])))
        room -= len(tokens) + len(tokens_of(call.name))
    return tuple(kept)


def chat_whole(answered: Answered, rules: Rules) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answered.text}
    if answered.reasoning:
        message["reasoning_content"] = answered.reasoning
    if answered.calls:
        message["content"] = answered.text or None
        message["tool_calls"] = [
            {
                "id": "" if rules.call_ids_empty else call_id,
                "type": "function",
                "function": {"name": one.name, "arguments": one.arguments},
            }
            for call_id, one in answered.calls
        ]
        if rules.content_omitted_with_calls and not answered.text:
            del message["content"]
    hidden = rules.length_hidden_by_calls and answered.calls
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": answered.model,
        "choices": [
            {"index": 0, "message": message, "finish_reason": "tool_calls" if hidden else answered.finish}
        ],
        "usage": answered.usage,
    }


async def chat_stream(
    answered: Answered, body: dict[str, Any], server: EdgeLlmServer
) -> AsyncIterator[bytes]:
    """Chunks at the server's speed, an error event among them where `fail_after` says so."""
    rules = server.rules
    head = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": answered.model,
    }
    await asyncio.sleep(server.prefill_s * answered.num_computed)
    for number, (delta, num_tokens) in enumerate(_deltas(answered, rules)):
        if server.fail_after is not None and number > server.fail_after:
            error = RefusedError(500, "engine_error", "The native runtime failed.")
            yield _event(server.error_object(500, error))
            yield b"data: [DONE]\n\n"
            return
        await asyncio.sleep(server.token_s * num_tokens)
        server.num_generated += num_tokens
        yield _event(_chunk(head, rules, delta, None))
    yield _event(_chunk(head, rules, {}, answered.finish))
    if (body.get("stream_options") or {}).get("include_usage") and not rules.no_stream_usage:
        yield _event({**head, "choices": [], "usage": answered.usage})
    if not rules.end_mark_missing:
        yield b"data: [DONE]\n\n"


def _deltas(answered: Answered, rules: Rules) -> list[tuple[dict[str, Any], int]]:
    """Deltas with the tokens each stands for."""
    deltas: list[tuple[dict[str, Any], int]] = [({"role": "assistant"}, 0)]
    deltas += [({"reasoning_content": piece}, 1) for piece in tokens_of(answered.reasoning)]
    leaked = [END_MARK] if rules.streams_leak_end_tokens and not answered.calls else []
    deltas += [({"content": piece}, 1) for piece in [*tokens_of(answered.text), *leaked]]
    for index, (call_id, call) in enumerate(answered.calls):
        place = 0 if rules.unstable_indices else index
        head: dict[str, Any] = {"index": place, "id": call_id, "type": "function"}
        if rules.unstable_indices:
            del head["id"]
        deltas.append(({"tool_calls": [{**head, "function": {"name": call.name, "arguments": ""}}]}, 1))
        deltas += [
            ({"tool_calls": [{"index": place, "function": {"arguments": piece}}]}, 1)
            for piece in tokens_of(call.arguments)
        ]
    return deltas


_KEYS = ("role", "content", "reasoning_content", "tool_calls", "audio")


def _chunk(head: dict[str, Any], rules: Rules, delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    if rules.null_keys_in_chunks:
        choice |= {"delta": dict.fromkeys(_KEYS) | delta, "logprobs": None}
        return {**head, "choices": [choice], "usage": None}
    return {**head, "choices": [choice]}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
