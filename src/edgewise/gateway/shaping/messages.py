"""Rules on Anthropic bodies for upstreams that take them, but not all of what Anthropic's clients send."""

from __future__ import annotations

from typing import Any

from edgewise.chat.dialects.arguments import dumped
from edgewise.gateway.profile import Api, Fault, Kind, Profile
from edgewise.gateway.shaping.step import Body, Context, Step, map_messages, objects
from edgewise.protocols.anthropic_messages import BILLING_HEADER

_APIS = (Api.MESSAGES, Api.COUNT_TOKENS)
_SYSTEM = ("system", "developer")
_BLOCKS = ("text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking")


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)


def _move_system(body: Body, context: Context) -> Body:
    """System turns among the messages, at the end of the top-level system: Claude Code has some in both places."""
    messages = body.get("messages")
    moved = [one for one in objects(messages) if one.get("role") in _SYSTEM]
    if not moved:
        return body
    assert isinstance(messages, list)
    system = _blocks(body.get("system") or [])
    system += [block for one in moved for block in _blocks(one.get("content")) if block.get("text")]
    rest = [one for one in messages if not (isinstance(one, dict) and one.get("role") in _SYSTEM)]
    return {**body, "messages": rest, **({"system": system} if system else {})}


def _takes_two_roles(profile: Profile, api: Api) -> bool:
    refusing = not {Fault.LATE_SYSTEM, Fault.DEVELOPER_ROLE}.isdisjoint(profile.faults)
    return api in _APIS and (profile.kind is Kind.EDGE_LLM or refusing)


def _known(block: dict[str, Any]) -> dict[str, Any]:
    """A block of a kind the upstream refuses, as text: a document's own, else what it holds."""
    if block.get("type") in _BLOCKS:
        return block
    source = block.get("source")
    text = source.get("data") if isinstance(source, dict) and source.get("type") == "text" else None
    return {"type": "text", "text": text if isinstance(text, str) else dumped(block)}


def _write_out_blocks(body: Body, context: Context) -> Body:
    def change(message: dict[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        if not isinstance(content, list):
            return message
        known = [_known(one) if isinstance(one, dict) else one for one in content]
        if all(new is old for new, old in zip(known, content, strict=True)):
            return message
        return {**message, "content": known}

    return map_messages(body, change)


def _without_billing(block: dict[str, Any]) -> dict[str, Any] | None:
    """A block of the system prompt without a billing line at its top; None where it was nothing else."""
    text = block.get("text")
    if not isinstance(text, str) or not text.startswith(BILLING_HEADER):
        return block
    rest = text.partition("\n")[2]
    return {**block, "text": rest} if rest.strip() else None


def _leave_out_billing(body: Body, context: Context) -> Body:
    """Claude Code's first line differs from session to session: with it no prompt would begin as one that is cached."""
    system = body.get("system")
    blocks = [{"text": system}] if isinstance(system, str) else objects(system)
    kept = [_without_billing(one) for one in blocks]
    if all(new is old for new, old in zip(kept, blocks, strict=True)):
        return body
    rest = [one for one in kept if one is not None]
    if isinstance(system, str):
        return {**body, "system": rest[0]["text"] if rest else ""}
    return {**body, "system": rest}


def _is_foreign(profile: Profile, api: Api) -> bool:
    return api in _APIS and profile.kind is not Kind.EDGEWISE


MESSAGES_STEPS = (
    Step("billing-line", _is_foreign, _leave_out_billing),
    Step("system-to-top", _takes_two_roles, _move_system),
    Step(
        "blocks-as-text",
        lambda profile, api: api in _APIS and profile.kind is Kind.EDGE_LLM,
        _write_out_blocks,
    ),
)
