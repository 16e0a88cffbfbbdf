"""A call that was required and not made: the answer is checked, and asked for again with a reminder; at last it is an error, never a wrong answer.

For upstreams that accept a choice of tools and ignore it. An answer under such a choice is gathered before anything of it is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta, PartStart
from edgewise.gateway.profile import Api, Profile
from edgewise.gateway.shaping.choices import asked_choice, is_unenforced
from edgewise.gateway.shaping.step import Body, objects
from edgewise.serving.errors import HttpError

MAX_ATTEMPTS = 3
Ask = Callable[[Body], Awaitable[list[ChatEvent]]]
"""Sends a body to the same upstream, and gives its whole answer, repaired."""


@dataclass(frozen=True, slots=True)
class Enforcement:
    """What an answer must hold: a call, of the tool `name` where one is named."""

    api: Api
    name: str = ""

    def is_met(self, events: Sequence[ChatEvent]) -> bool:
        calls = [
            one for one in events if isinstance(one, PartStart) and one.kind in ("tool_call", "custom_call")
        ]
        return any(not self.name or call.name == self.name for call in calls)

    def reminded(self, body: Body, events: Sequence[ChatEvent]) -> Body:
        """The body with the answer that was no call, and what is wanted instead. Of tools only the named one is left."""
        what = f"the tool {self.name}" if self.name else "one of the tools"
        said = "".join(_text_of(events))
        turns: list[dict[str, Any]] = [{"role": "assistant", "content": said}] if said.strip() else []
        turns.append({"role": "user", "content": f"Call {what} now, and write nothing else."})
        changed = {**body, "messages": [*body["messages"], *turns]}
        if self.name:
            changed["tools"] = [one for one in objects(body.get("tools")) if _name_of(one) == self.name]
        return changed

    async def enforce(self, body: Body, first: list[ChatEvent], ask: Ask) -> list[ChatEvent]:
        """The first answer that has the call, `first` among them. An answer that failed is the answer, and so is the last one if its
        limit cut it: it says so itself.

        Raises HttpError 502 where the upstream does not call after `MAX_ATTEMPTS` answers, and what `ask` raises.
        """
        events, attempt = first, 1
        while not (self.is_met(events) or _ended(events, but=("stop", "tool_calls", "length"))):
            if attempt >= MAX_ATTEMPTS and _ended(events, but=("stop", "tool_calls")):
                return events
            if attempt >= MAX_ATTEMPTS:
                raise HttpError(
                    502,
                    f"tool_choice asks for a call, and the model made none in {attempt} answers.",
                    kind="server_error",
                    code="tool_choice_not_met",
                )
            body, attempt = self.reminded(body, events), attempt + 1
            events = await ask(body)
        return events


def enforcement(body: Body, api: Api, profile: Profile) -> Enforcement | None:
    """What has to be checked of the answers to a client's body (before shaping), or nothing."""
    if not is_unenforced(body, profile, api):
        return None
    return Enforcement(api, asked_choice(body, api)[1])


def _text_of(events: Sequence[ChatEvent]) -> list[str]:
    texts, kind = [], ""
    for event in events:
        if isinstance(event, PartStart):
            kind = event.kind
        elif isinstance(event, PartDelta) and kind == "text":
            texts.append(event.text)
    return texts


def _ended(events: Sequence[ChatEvent], *, but: Sequence[str]) -> bool:
    """Whether an answer failed, or ended for a reason that is none of these."""
    return any(
        isinstance(one, Failed) or (isinstance(one, Finish) and one.reason not in but) for one in events
    )


def _name_of(tool: dict[str, Any]) -> str:
    function = tool.get("function")
    return str(function.get("name") if isinstance(function, dict) else tool.get("name"))
