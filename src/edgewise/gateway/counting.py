"""/v1/messages/count_tokens for upstreams without it: the number that the request itself would report.

The upstream counts, in the cheapest way it has: a route for it, its tokenizer fed with a conversation, or an answer of one token whose usage
tells. A way that fails is left for the next; the last one's error is the client's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, assert_never

import orjson

from edgewise.core.chat import Finish
from edgewise.gateway.dialects import Wanted
from edgewise.gateway.parts import Route
from edgewise.gateway.profile import Api, Fault, Kind
from edgewise.gateway.side import Side
from edgewise.gateway.translate import Translation
from edgewise.gateway.upstream_errors import read_error
from edgewise.protocols import anthropic
from edgewise.serving.errors import HttpError

_TOKENIZED = ("messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")
"""What of a chat request vLLM's /tokenize renders."""


def read_count(body: object) -> Wanted:
    """The conversation of a count_tokens request, to be answered with one token."""
    parsed = anthropic.parse_count(body)
    chat = replace(parsed.chat, sampling={"max_tokens": 1}, stream=False, include_usage=False)
    return Wanted(chat, replace(parsed.reply, stream=False))


class Counter:
    """Event loop only."""

    def __init__(self, side: Side) -> None:
        self._side = side

    async def count(self, route: Route, translation: Translation, body: dict[str, Any]) -> int:
        """The prompt's tokens, `body` being the shaped request. Raises HttpError, the upstream's own where it refuses the prompt."""
        profile = route.upstream.profile
        trusted = translation.upstream_api is Api.CHAT and Fault.COUNT_TOKENS not in profile.faults
        for way in self._ways(profile.kind) if trusted else ():
            if (count := await way(route, body)) is not None:
                return count
        return await self._by_answering(route, translation, body)

    def _ways(self, kind: Kind) -> tuple[Callable[[Route, dict[str, Any]], Awaitable[int | None]], ...]:
        match kind:
            case Kind.LLAMA:
                return (self._by_route, self._by_template)
            case Kind.VLLM:
                return (self._by_tokenizing,)
            case Kind.EDGEWISE | Kind.EDGE_LLM | Kind.OPENAI:
                return ()
            case _:
                assert_never(kind)

    async def _ask(self, route: Route, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The object an upstream answers; empty where it does not."""
        status, answer, _ = await self._side.ask(route.upstream, path, orjson.dumps(body))
        if status != 200:
            return {}
        try:
            value = orjson.loads(answer)
        except orjson.JSONDecodeError:
            return {}
        return value if isinstance(value, dict) else {}

    async def _by_route(self, route: Route, body: dict[str, Any]) -> int | None:
        """llama-server counts what a chat request would be."""
        return _number(await self._ask(route, Api.CHAT.value + "/input_tokens", body), "input_tokens")

    async def _by_template(self, route: Route, body: dict[str, Any]) -> int | None:
        """Older llama-servers render, and tokenise as chat requests do: with special tokens added and understood."""
        rendered = await self._ask(route, "/apply-template", body)
        if not isinstance(rendered.get("prompt"), str):
            return None
        asked = {
            "content": rendered["prompt"],
            "add_special": True,
            "parse_special": True,
            "model": route.model,
        }
        tokens = (await self._ask(route, "/tokenize", asked)).get("tokens")
        return len(tokens) if isinstance(tokens, list) else None

    async def _by_tokenizing(self, route: Route, body: dict[str, Any]) -> int | None:
        asked = {name: body[name] for name in _TOKENIZED if name in body}
        return _number(await self._ask(route, "/tokenize", {**asked, "model": route.model}), "count")

    async def _by_answering(self, route: Route, translation: Translation, body: dict[str, Any]) -> int:
        path = translation.upstream_api.value
        status, answer, headers = await self._side.ask(route.upstream, path, orjson.dumps(body))
        if status != 200:
            raise read_error(route.upstream.name, status, answer, headers)
        for event in translation.events_of(answer):
            if isinstance(event, Finish):
                return event.usage.prompt_tokens
        raise HttpError(502, "The upstream told no count.", kind="server_error", code="upstream_malformed")


def _number(value: dict[str, Any], name: str) -> int | None:
    number = value.get(name)
    return number if isinstance(number, int) else None
