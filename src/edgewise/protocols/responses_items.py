"""The output items of a response: the events each is streamed with, and the object it has become.

Ids derive from the response's id and the item's place, so a stream and an answer in one piece name the same things alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from edgewise.core.chat import PartDelta, PartStart, ToolDefinition
from edgewise.core.requests import TokenLogprob
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.responses_input import carry_reasoning

Event = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete"]


class OutputItem(ABC):
    """One item as far as it has come. The events lack only their sequence numbers."""

    prefix: ClassVar[str]

    def __init__(self, response_id: str, place: int) -> None:
        self.place = place
        self.id = f"{self.prefix}_{response_id.removeprefix('resp_')}_{place}"
        self.status: Status = "in_progress"
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def _begun(self) -> bool:
        """Whether there is content yet: an item is announced without."""
        return bool(self._pieces) or self.status != "in_progress"

    @abstractmethod
    def encode(self) -> dict[str, Any]:
        """The item as an object, with what it holds by now."""

    @abstractmethod
    def start(self) -> list[Event]: ...

    @abstractmethod
    def delta(self, event: PartDelta) -> list[Event]: ...

    @abstractmethod
    def end(self) -> list[Event]:
        """The closing events; `status` is final by now."""

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": kind, "item_id": self.id, "output_index": self.place, **fields}

    def _added(self) -> Event:
        return {"type": "response.output_item.added", "output_index": self.place, "item": self.encode()}

    def _done(self) -> Event:
        return {"type": "response.output_item.done", "output_index": self.place, "item": self.encode()}


class TextItem(OutputItem):
    """A message of one text part. `writer` None: no logprobs are shown."""

    prefix = "msg"

    def __init__(self, response_id: str, place: int, writer: LogprobWriter | None) -> None:
        super().__init__(response_id, place)
        self._writer = writer
        self._logprobs: list[dict[str, Any]] = []

    def encode(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "status": self.status,
            "content": [self._part()] if self._begun else [],
        }

    def _part(self) -> dict[str, Any]:
        logprobs = list(self._logprobs)
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": logprobs}

    def start(self) -> list[Event]:
        return [
            self._added(),
            self._event("response.content_part.added", content_index=0, part=self._part()),
        ]

    def delta(self, event: PartDelta) -> list[Event]:
        logprobs = self._encode_logprobs(event.logprobs or ())
        if not event.text and not logprobs:
            return []
        self._pieces.append(event.text)
        self._logprobs += logprobs
        return [
            self._event("response.output_text.delta", content_index=0, delta=event.text, logprobs=logprobs)
        ]

    def _encode_logprobs(self, entries: Iterable[TokenLogprob]) -> list[dict[str, Any]]:
        if self._writer is None:
            return []
        encoded: list[dict[str, Any]] = self._writer.chat(entries)["content"]
        return encoded

    def end(self) -> list[Event]:
        part = self._part()
        return [
            self._event(
                "response.output_text.done", content_index=0, text=part["text"], logprobs=part["logprobs"]
            ),
            self._event("response.content_part.done", content_index=0, part=part),
            self._done(),
        ]


class ReasoningItem(OutputItem):
    """Thinking: as it is in `content`; again as the summary where one was asked for, which is what Codex shows; and
    carried in `encrypted_content` where that was asked for, which is what Codex sends back.
    """

    prefix = "rs"

    def __init__(self, response_id: str, place: int, *, summarised: bool, carried: bool) -> None:
        super().__init__(response_id, place)
        self._summarised = summarised
        self._carried = carried

    def encode(self) -> dict[str, Any]:
        begun = self._begun
        item: dict[str, Any] = {
            "id": self.id,
            "type": "reasoning",
            "status": self.status,
            "summary": [self._summary()] if begun and self._summarised else [],
            "content": [self._part()] if begun else [],
        }
        if self._carried:
            item["encrypted_content"] = carry_reasoning(self.text) if begun else None
        return item

    def _part(self) -> dict[str, Any]:
        return {"type": "reasoning_text", "text": self.text}

    def _summary(self) -> dict[str, Any]:
        return {"type": "summary_text", "text": self.text}

    def start(self) -> list[Event]:
        events = [
            self._added(),
            self._event("response.content_part.added", content_index=0, part=self._part()),
        ]
        if self._summarised:
            added = "response.reasoning_summary_part.added"
            events.append(self._event(added, summary_index=0, part=self._summary()))
        return events

    def delta(self, event: PartDelta) -> list[Event]:
        if not event.text:
            return []
        self._pieces.append(event.text)
        events = [self._event("response.reasoning_text.delta", content_index=0, delta=event.text)]
        if self._summarised:
            kind = "response.reasoning_summary_text.delta"
            events.append(self._event(kind, summary_index=0, delta=event.text))
        return events

    def end(self) -> list[Event]:
        text = self.text
        events = [
            self._event("response.reasoning_text.done", content_index=0, text=text),
            self._event("response.content_part.done", content_index=0, part=self._part()),
        ]
        if self._summarised:
            done = self._event("response.reasoning_summary_text.done", summary_index=0, text=text)
            part = self._event("response.reasoning_summary_part.done", summary_index=0, part=self._summary())
            events += [done, part]
        return [*events, self._done()]


class CallItem(OutputItem):
    """A call, under the name its client gave the tool.

    A call that was cut off is never reported done, since clients run what is done whatever its status; it is only found, as
    incomplete, in the last event's output.
    """

    kind: ClassVar[str]
    written: ClassVar[str]  # the field that holds what the model wrote
    stream: ClassVar[str]  # what its events are called

    def __init__(self, response_id: str, place: int, start: PartStart, tool: ToolDefinition | None) -> None:
        super().__init__(response_id, place)
        self._call_id = start.id
        self._name = start.name if tool is None else tool.local_name or tool.name
        self._namespace = None if tool is None else tool.namespace

    def encode(self) -> dict[str, Any]:
        item = {
            "id": self.id,
            "type": self.kind,
            "status": self.status,
            "call_id": self._call_id,
            "name": self._name,
            self.written: self.text,
        }
        return item if self._namespace is None else item | {"namespace": self._namespace}

    def start(self) -> list[Event]:
        return [self._added()]

    def delta(self, event: PartDelta) -> list[Event]:
        if not event.text:
            return []
        self._pieces.append(event.text)
        return [self._event(f"response.{self.stream}.delta", delta=event.text)]

    def end(self) -> list[Event]:
        if self.status == "incomplete":
            return []
        return [self._event(f"response.{self.stream}.done", **{self.written: self.text}), self._done()]


class FunctionCallItem(CallItem):
    prefix = "fc"
    kind = "function_call"
    written = "arguments"
    stream = "function_call_arguments"


class CustomCallItem(CallItem):
    prefix = "ctc"
    kind = "custom_tool_call"
    written = "input"
    stream = "custom_tool_call_input"
