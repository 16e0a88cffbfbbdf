"""The chunks of a streamed chat completion.

A plain delta, by far the most common event, costs one JSON string: everything round it is constant and made once a part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta, PartEnd, PartStart
from edgewise.core.requests import Usage
from edgewise.protocols import sse
from edgewise.protocols.chat import finish_reason, reasoning_fields
from edgewise.protocols.errors import encode_error
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.reply import PromptEcho, ReplyHead, ReplyOptions, encode_timings, encode_usage
from edgewise.protocols.stream import DeltaMerger

_SIGN_OF_LIFE = sse.comment("working")
_MARK = "\x00"  # where a delta's text goes; no template of a chunk holds it otherwise
_ENCODED_MARK = orjson.dumps(_MARK)


class _OpenChoice:
    """What a choice is writing: the kind of its open part, the number of its last call, the chunk round a plain delta."""

    __slots__ = ("finished", "frame", "kind", "num_calls")

    def __init__(self) -> None:
        self.kind = "text"
        self.num_calls = 0
        self.frame: list[bytes] = []
        self.finished = False


class ChatStreamEncoder:
    """StreamEncoder of /v1/chat/completions."""

    def __init__(
        self, head: ReplyHead, options: ReplyOptions, writer: LogprobWriter, prompt: PromptEcho
    ) -> None:
        self._options = options
        self._writer = writer
        self._prompt = prompt
        self._usage = Usage(prompt_tokens=len(prompt.token_ids))
        self._choices = [_OpenChoice() for _ in range(options.num_choices)]
        self._merger = DeltaMerger(options.stream_interval) if options.stream_interval > 1 else None
        self._constant: dict[str, Any] = {
            "id": head.id,
            "object": "chat.completion.chunk",
            "created": head.created,
            "model": head.model,
        }
        if options.include_usage and not options.continuous_usage:
            self._constant["usage"] = None
        self._plain = options.logprobs is None and not options.token_ids and not options.continuous_usage

    def _chunk(self, index: int, delta: dict[str, Any], **more: Any) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **more}
        return self._send([choice])

    def _send(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        body = {**self._constant, "choices": choices, **more}
        if self._options.continuous_usage and choices:
            body["usage"] = encode_usage(self._usage)
        return sse.data(body)

    def opening(self) -> bytes:
        """The role chunk of every choice, with the echoed text and the prompt's ids where asked."""
        text = self._prompt.text if self._options.echo else ""
        role = {"role": "assistant", "content": text}
        choices = [
            {"index": i, "delta": role, "logprobs": None, "finish_reason": None}
            for i in range(self._options.num_choices)
        ]
        ids = {"prompt_token_ids": list(self._prompt.token_ids)} if self._options.token_ids else {}
        return b"".join(self._send([choice], **(ids if i == 0 else {})) for i, choice in enumerate(choices))

    def encode(self, events: Iterable[ChatEvent]) -> bytes:
        if self._merger is not None:
            events = self._merger.merge(events)
        return b"".join(map(self._encode_event, events))

    def _encode_event(self, event: ChatEvent) -> bytes:
        match event:
            case PartDelta():
                return self._encode_delta(event)
            case PartStart():
                return self._encode_start(event)
            case Finish():
                return self._encode_finish(event)
            case PartEnd():
                return b""
            case Failed():
                return self.failure(event.error)

    def _encode_start(self, event: PartStart) -> bytes:
        """A call is announced with its id and name; other parts show themselves with their first text."""
        choice = self._choices[event.choice]
        choice.kind = event.kind
        choice.frame = []
        if event.kind not in ("tool_call", "custom_call"):
            return b""
        choice.num_calls += 1
        return self._chunk(event.choice, self._call_start(event, choice.num_calls - 1))

    def _call_start(self, event: PartStart, number: int) -> dict[str, Any]:
        if self._options.legacy_calls:
            return {"function_call": {"name": event.name, "arguments": ""}} if number == 0 else {}
        head = {"index": number, "id": event.id}
        if event.kind == "custom_call":
            return {"tool_calls": [head | {"type": "custom", "custom": {"name": event.name, "input": ""}}]}
        function = {"name": event.name, "arguments": ""}
        return {"tool_calls": [head | {"type": "function", "function": function}]}

    def _encode_delta(self, event: PartDelta) -> bytes:
        choice = self._choices[event.choice]
        if self._plain:
            if not event.text:
                return b""
            if not choice.frame:
                chunk = self._chunk(event.choice, self._delta(choice, _MARK))
                choice.frame = chunk.split(_ENCODED_MARK)
            return orjson.dumps(event.text).join(choice.frame)
        self._usage.completion_tokens += len(event.token_ids)
        more: dict[str, Any] = {}
        if self._options.logprobs is not None and event.logprobs:
            more["logprobs"] = self._writer.chat(event.logprobs)
        if self._options.token_ids:
            more["token_ids"] = list(event.token_ids)
        return self._chunk(event.choice, self._delta(choice, event.text) if event.text else {}, **more)

    def _delta(self, choice: _OpenChoice, text: str) -> dict[str, Any]:
        number = choice.num_calls - 1
        if choice.kind == "reasoning":
            return dict(reasoning_fields(text))
        if choice.kind in ("tool_call", "custom_call") and self._options.legacy_calls:
            return {"function_call": {"arguments": text}} if number == 0 else {}
        if choice.kind == "tool_call":
            return {"tool_calls": [{"index": number, "function": {"arguments": text}}]}
        if choice.kind == "custom_call":
            return {"tool_calls": [{"index": number, "custom": {"input": text}}]}
        return {"content": text}

    def _encode_finish(self, event: Finish) -> bytes:
        self._usage = event.usage
        self._choices[event.choice].finished = True
        reason = finish_reason(event.reason, self._options.legacy_calls)
        choice = {"index": event.choice, "delta": {}, "logprobs": None, "finish_reason": reason}
        timings = encode_timings(event.timings, event.usage)
        return self._send([{**choice, "stop_reason": event.matched_stop}], **timings)

    def keepalive(self) -> bytes:
        """A comment for those who count bytes, an empty delta of a choice that goes on for those who count events."""
        going_on = next((i for i, choice in enumerate(self._choices) if not choice.finished), None)
        return _SIGN_OF_LIFE + (b"" if going_on is None else self._chunk(going_on, {}))

    def closing(self) -> bytes:
        if not self._options.include_usage:
            return sse.DONE
        return self._send([], usage=encode_usage(self._usage)) + sse.DONE

    def failure(self, error: Exception) -> bytes:
        return sse.data(encode_error(error)) + sse.DONE
