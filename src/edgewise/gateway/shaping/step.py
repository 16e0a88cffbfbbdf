"""What a shaping rule is: a name that is counted, when an upstream needs it, and what it does to a body.

A rule returns the body itself where it has nothing to do, and a new one where it has: what came from a client is never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from edgewise.gateway.profile import Api, Fault, Profile

Body = dict[str, Any]


@dataclass(slots=True)
class Context:
    """What rules know beside the body. `dropped` gathers the dotted names of what is left out."""

    profile: Profile
    api: Api
    model: str
    dropped: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Step:
    """One rule."""

    name: str
    wanted: Callable[[Profile, Api], bool]
    apply: Callable[[Body, Context], Body]


def when(*faults: Fault, apis: tuple[Api, ...] = (Api.CHAT,)) -> Callable[[Profile, Api], bool]:
    """For upstreams with any of these faults."""
    asked = frozenset(faults)
    return lambda profile, api: api in apis and not asked.isdisjoint(profile.faults)


def without(body: Body, *names: str) -> Body:
    """The body without some fields; itself where it has none of them."""
    if not any(name in body for name in names):
        return body
    return {name: value for name, value in body.items() if name not in names}


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; what is no list has none."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def map_messages(body: Body, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Body:
    """Every message changed, in its place."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return body
    changed = [change(one) if isinstance(one, dict) else one for one in messages]
    if all(new is old for new, old in zip(changed, messages, strict=True)):
        return body
    return {**body, "messages": changed}


def map_calls(message: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Every call of a chat message changed."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    changed = [change(one) if isinstance(one, dict) else one for one in calls]
    if all(new is old for new, old in zip(changed, calls, strict=True)):
        return message
    return {**message, "tool_calls": changed}


def text_of(content: Any) -> str:
    """The text of a message's content, its parts joined by line ends."""
    if isinstance(content, str):
        return content
    texts = [part.get("text") for part in objects(content)]
    return "\n".join(text for text in texts if isinstance(text, str))
