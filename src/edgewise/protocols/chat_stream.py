"""The chunks of a streamed chat completion.

A plain text delta, by far the most common event, costs one JSON string: everything round it is constant and made once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta, PartEnd, PartStart
from edgewise.core.requests import Usage
from edgewise.protocols import sse
from edgewise.protocols.errors import encode_error
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.reply import PromptEcho, ReplyHead, ReplyOptions, encode_usage
from edgewise.protocols.stream import DeltaMerger

_SIGN_OF_LIFE = sse.comment("working")


class ChatStreamEncoder:
    """StreamEncoder of /v1/chat/completions."""

    def __init__(
        self, head: ReplyHead, options: ReplyOptions, writer: LogprobWriter, prompt: PromptEcho
    ) -> None:
        self._options = options
        self._writer = writer
        self._prompt = prompt
        self._usage = Usage(prompt_tokens=len(prompt.token_ids))
        self._open: list[PartStart | None] = [None] * options.num_choices
        self._num_calls = [0] * options.num_choices
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
        self._frames = [self._text_frame(i) for i in range(options.num_choices)]

    def _text_frame(self, index: int) -> tuple[bytes, bytes]:
        """What stands before and after the text of a plain delta."""
        mark = "\x00"
        before, after = self._chunk(index, {"content": mark}).split(orjson.dumps(mark))
        return before, after

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
                self._open[event.choice] = event
                return self._encode_start(event)
            case Finish():
                return self._encode_finish(event)
            case PartEnd():
                self._open[event.choice] = None
                return b""
            case Failed():
                return self.failure(event.error)

    def _encode_start(self, event: PartStart) -> bytes:
        if event.kind != "tool_call":
            return b""
        number = self._num_calls[event.choice]
        self._num_calls[event.choice] += 1
        function = {"name": event.name, "arguments": ""}
        call = {"index": number, "id": event.id, "type": "function", "function": function}
        return self._chunk(event.choice, {"tool_calls": [call]})

    def _encode_delta(self, event: PartDelta) -> bytes:
        part = self._open[event.choice]
        kind = "text" if part is None else part.kind
        if self._plain and kind == "text":
            before, after = self._frames[event.choice]
            return before + orjson.dumps(event.text) + after if event.text else b""
        self._usage.completion_tokens += len(event.token_ids)
        more: dict[str, Any] = {}
        if self._options.logprobs is not None and event.logprobs:
            more["logprobs"] = self._writer.chat(event.logprobs)
        if self._options.token_ids:
            more["token_ids"] = list(event.token_ids)
        return self._chunk(event.choice, self._delta(kind, event), **more)

    def _delta(self, kind: str, event: PartDelta) -> dict[str, Any]:
        if kind == "reasoning":
            return {"reasoning": event.text}
        if kind == "tool_call":
            number = self._num_calls[event.choice] - 1
            return {"tool_calls": [{"index": number, "function": {"arguments": event.text}}]}
        return {"content": event.text}

    def _encode_finish(self, event: Finish) -> bytes:
        self._usage = event.usage
        return self._chunk(event.choice, {}, finish_reason=event.reason, stop_reason=event.matched_stop)

    def keepalive(self) -> bytes:
        """A comment for those who count bytes, an empty delta for those who count events."""
        return _SIGN_OF_LIFE + self._chunk(0, {})

    def closing(self) -> bytes:
        if not self._options.include_usage:
            return sse.DONE
        return self._send([], usage=encode_usage(self._usage)) + sse.DONE

    def failure(self, error: Exception) -> bytes:
        return sse.data(encode_error(error)) + sse.DONE
