"""One request of a client as forwarding sees it, read from what came: which API, for whom, what it asks of the gateway itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from edgewise.core.errors import InvalidRequestError
from edgewise.core.keys import KeyRecord
from edgewise.gateway.profile import Api

_PASSED_ON = frozenset(
    {
        "accept",
        "anthropic-beta",
        "anthropic-version",
        "openai-beta",
        "traceparent",
        "tracestate",
        "user-agent",
        "x-request-id",
    }
)
"""Headers that reach an upstream. Keys and cookies are the gateway's own affair, and so is the connection."""

_SESSION_HEADERS = ("x-session-affinity", "session_id", "x-session-id")
_SESSION_FIELDS = ("prompt_cache_key", "session_id")


@dataclass(frozen=True, slots=True)
class Call:
    """A generating request. `body` is `raw` decoded, and never changed: each attempt shapes a copy of its own.

    `affinity` is the same for all requests of one conversation, and of nothing else as far as can be told.
    """

    api: Api
    raw: bytes
    body: dict[str, Any]
    headers: dict[str, str]
    key: KeyRecord
    id: str
    affinity: str

    @property
    def model(self) -> str:
        name = self.body.get("model")
        return name if isinstance(name, str) else ""

    @property
    def message_id(self) -> str:
        """What an answer of Anthropic's API is called, from its first event on."""
        return "msg_" + self.id.removeprefix("req_")

    @property
    def stream(self) -> bool:
        return self.body.get("stream") is True and self.api not in (Api.COUNT_TOKENS, Api.EMBEDDINGS)

    @property
    def background(self) -> bool:
        """vLLM's `priority`: lower runs earlier, so what is above 0 can wait."""
        priority = self.body.get("priority")
        return self.key.limits.background or (isinstance(priority, int) and priority > 0)


Earlier = Callable[[str], Sequence[Any]]
"""The input that a kept response was made from, by the response's id; empty where none is kept."""


def read_call(
    api: Api,
    raw: bytes,
    body: Any,
    headers: Iterable[tuple[bytes, bytes]],
    key: KeyRecord,
    call_id: str,
    *,
    earlier: Earlier = lambda response_id: (),
) -> Call:
    """Raises InvalidRequestError for a body that is no object or a model that is no name."""
    if not isinstance(body, dict):
        raise InvalidRequestError("The request's body must be a JSON object.", code="invalid_json")
    if not isinstance(body.get("model", ""), str | None):
        raise InvalidRequestError("model must be a string.", param="model")
    named = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    passed_on = {name: value for name, value in named.items() if name in _PASSED_ON}
    return Call(api, raw, body, passed_on, key, call_id, _affinity_of(body, named, key, earlier))


def _affinity_of(body: dict[str, Any], headers: dict[str, str], key: KeyRecord, earlier: Earlier) -> str:
    """What a client calls its session, or else a digest of how the conversation begins."""
    session = next((headers[name] for name in _SESSION_HEADERS if headers.get(name)), None)
    session = session or next(
        (body[name] for name in _SESSION_FIELDS if isinstance(body.get(name), str)), None
    )
    beginning = [key.id, body.get("model"), session or _beginning_of(body, earlier)]
    return hashlib.blake2b(orjson.dumps(beginning), digest_size=12).hexdigest()


def _beginning_of(body: dict[str, Any], earlier: Earlier) -> Any:
    """What the first message that is not the system's says: it stays the same for a conversation's life, and system prompts are alike."""
    previous = body.get("previous_response_id")
    kept = earlier(previous) if isinstance(previous, str) else ()
    messages = kept or body.get("messages") or body.get("input") or body.get("prompt")
    if not isinstance(messages, list | tuple):
        return messages
    for message in messages:
        if not isinstance(message, dict) or message.get("role") not in ("system", "developer"):
            return _said(message)
    return None


def _said(message: Any) -> Any:
    """Its text, however it is written; else the message itself."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content or message
