"""The conversation of a Messages request -> core messages. Every error names the block.

A user's turn may hold the results of several calls and text as well. It becomes one `tool` message for each result, in the order of
the calls they answer (templates without ids pair by order), then the user's text. Clients that interrupt or compact leave calls
without results and results without calls behind; the API refuses those, and with them the rest of a session. Here a call without a
result is answered by a line that says so, and a result without a call is told as text, so that nothing is lost and every
template has its pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edgewise.core.chat import Message, Part, Role, TextPart, ToolCall
from edgewise.protocols.anthropic_blocks import (
    blocks_of,
    filled,
    part_of,
    result_text,
    text_of,
    unknown_block,
)
from edgewise.protocols.fields import Fields

BILLING_HEADER = "x-anthropic-billing-header:"
"""How the first line of Claude Code's system prompt begins. It is addressed to Anthropic's servers, differs from session to session,
and would void the cache of all that follows."""

NO_RESULT = "[No result: the call was interrupted.]"
NO_CALL = "[Result of a call that is no longer in this conversation]"

_OPENING_CHARS = 80  # of an error's text, where it says that it is one
_SERVER_BLOCKS = ("server_tool_use", "mcp_tool_use", "container_upload")


@dataclass(slots=True)
class _Turn:
    """One turn of the request: its own message, if it has anything but results, and the results it brings."""

    message: Message | None
    index: int
    results: list[Message] = field(default_factory=list)
    strays: list[Message] = field(default_factory=list)  # results that answer no call

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return () if self.message is None else self.message.tool_calls


class ConversationReader:
    """Reads `system` and `messages`. `ignored` names what was met on the way and has no effect."""

    def __init__(self) -> None:
        self.ignored: list[str] = []

    def read(self, fields: Fields) -> tuple[Message, ...]:
        """Raises InvalidRequestError for anything but a non-empty list of well-formed turns."""
        system = self._read_system(fields)
        raw_turns = fields.array("messages")
        if not raw_turns:
            raise fields.fail("messages", "must be a non-empty array")
        turns = [self._read_turn(Fields.of(raw, f"messages[{i}]"), i) for i, raw in enumerate(raw_turns)]
        if not (messages := (*system, *_paired(turns))):
            raise fields.fail("messages", "must hold more than empty turns")
        return messages

    def _note(self, name: str) -> None:
        if name not in self.ignored:
            self.ignored.append(name)

    def _read_system(self, fields: Fields) -> tuple[Message, ...]:
        parts = filled(map(self._system_part, blocks_of(fields, "system")))
        return (Message("system", parts),) if parts else ()

    def _system_part(self, block: Fields) -> TextPart:
        if block.get("type") != "text":
            raise block.fail("type", "must be text", block.get("type"))
        text = text_of(block)
        if text.startswith(BILLING_HEADER):
            self._note("x-anthropic-billing-header")
            text = text.partition("\n")[2]
        return TextPart(text)

    def _read_turn(self, fields: Fields, index: int) -> _Turn:
        role = fields.string("role")
        if fields.get("content") is None:
            raise fields.fail("content", "is required")
        blocks = blocks_of(fields)
        if role == "user":
            return self._user_turn(blocks, index)
        if role == "assistant":
            return self._assistant_turn(blocks, index)
        if role == "system":
            parts = filled(map(self._system_part, blocks))
            return _Turn(Message("system", parts, index=index) if parts else None, index)
        raise fields.fail("role", "must be user, assistant or system", role)

    def _user_turn(self, blocks: Sequence[Fields], index: int) -> _Turn:
        results = [_read_result(block, index) for block in blocks if block.get("type") == "tool_result"]
        others = [block for block in blocks if block.get("type") != "tool_result"]
        parts = filled(part_of(block) for block in others if not self._is_servers(block))
        has_message = bool(parts) or not results
        return _Turn(Message("user", parts, index=index) if has_message else None, index, results)

    def _assistant_turn(self, blocks: Sequence[Fields], index: int) -> _Turn:
        parts: list[Part] = []
        thoughts: list[str] = []
        calls: list[ToolCall] = []
        for block in blocks:
            match block.string("type"):
                case "thinking":
                    thoughts.append(block.string("thinking") or "")
                case "redacted_thinking":  # nobody here can read it
                    self._note("redacted_thinking")
                case "tool_use":
                    calls.append(_read_call(block, f"call_{index}_{len(calls)}"))
                case "tool_result":
                    raise unknown_block(block)
                case _ if not self._is_servers(block):
                    parts.append(part_of(block))
        reasoning = "\n".join(filter(None, thoughts)) or None
        message = Message("assistant", filled(parts), tuple(calls), reasoning=reasoning, index=index)
        return _Turn(message, index)

    def _is_servers(self, block: Fields) -> bool:
        """Whether a block tells of a tool that Anthropic's own servers ran: left out, with a note."""
        kind = block.get("type")
        if not isinstance(kind, str) or not (kind in _SERVER_BLOCKS or kind.endswith("_tool_result")):
            return False
        self._note(kind)
        return True


def _read_call(block: Fields, fallback_id: str) -> ToolCall:
    name = block.string("name")
    if not name:
        raise block.fail("name", "is required")
    arguments: Any = block.get("input")
    if not isinstance(arguments, str | dict | None):
        raise block.fail("input", "must be an object", arguments)
    return ToolCall(block.string("id") or fallback_id, name, arguments)


def _read_result(block: Fields, index: int) -> Message:
    """A result as a `tool` message. An error says that it is one: templates have no other place for that."""
    block.require("tool_use_id")
    texts = [text for text in map(result_text, blocks_of(block)) if text]
    if block.boolean("is_error") and not (texts and "error" in texts[0][:_OPENING_CHARS].lower()):
        texts[:1] = [f"Error: {texts[0]}" if texts else "Error"]
    return Message("tool", tuple(map(TextPart, texts)), tool_call_id=block.string("tool_use_id"), index=index)


def _paired(turns: Sequence[_Turn]) -> Iterable[Message]:
    """The messages of all turns, every call followed by its result."""
    results = _match_results(turns)
    for number, turn in enumerate(turns):
        if turn.strays:
            turn.message = _with_strays(turn)
        if turn.message is not None:
            yield turn.message
        followed = number + 1 < len(turns)
        for place, call in enumerate(turn.calls):
            if (result := results.get((number, place))) is not None:
                yield result
            elif followed:
                yield Message("tool", (TextPart(NO_RESULT),), tool_call_id=call.id, index=turn.index)


def _match_results(turns: Sequence[_Turn]) -> dict[tuple[int, int], Message]:
    """(turn, place of the call in it) -> its result, from any turn up to the assistant's next. The rest become strays."""
    results: dict[tuple[int, int], Message] = {}
    caller = -1
    for number, turn in enumerate(turns):
        if turn.message is not None and turn.message.role == "assistant":
            caller = number
        for result in turn.results:
            calls = turns[caller].calls if caller >= 0 else ()
            places = (p for p, call in enumerate(calls) if call.id == result.tool_call_id)
            place = next((p for p in places if (caller, p) not in results), None)
            if place is None:
                turn.strays.append(result)
            else:
                results[caller, place] = result
    return results


def _with_strays(turn: _Turn) -> Message:
    """The user's message with the text of stray results before it."""
    role: Role = "user"
    own = turn.message or Message(role, index=turn.index)
    told = tuple(TextPart(f"{NO_CALL}\n{result.text}") for result in turn.strays)
    return replace(own, parts=(*told, *own.parts))
