"""Chat events gathered into the outputs of the Python API."""

from __future__ import annotations

import logging

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta, PartEnd, PartStart, ToolCall
from edgewise.core.errors import EngineDeadError
from edgewise.core.requests import RequestTimings, TokenLogprob, Usage
from edgewise.outputs import CompletionOutput, RequestOutput, StreamDelta
from edgewise.pipeline.prepare import Prepared

logger = logging.getLogger("edgewise.pipeline")


CALLS = ("tool_call", "custom_call")


class _Choice:
    """What has come of one choice."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.arguments: list[str] = []
        self.tool_calls: list[ToolCall] = []
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.open: PartStart | None = None
        self.finish: Finish | None = None

    def add(self, event: PartStart | PartDelta | PartEnd | Finish) -> None:
        match event:
            case PartStart():
                self.open = event
            case PartDelta():
                self._add_delta(event)
            case PartEnd():
                if self.open is not None and self.open.kind in CALLS:
                    self.tool_calls.append(ToolCall(self.open.id, self.open.name, "".join(self.arguments)))
                    self.arguments.clear()
                self.open = None
            case Finish():
                self.finish = event

    def _add_delta(self, delta: PartDelta) -> None:
        kind = self.open.kind if self.open is not None else "text"
        {"text": self.text, "reasoning": self.reasoning}.get(kind, self.arguments).append(delta.text)
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs or ()

    def output(self, *, wants_logprobs: bool) -> CompletionOutput:
        return CompletionOutput(
            index=self.index,
            text="".join(self.text),
            token_ids=tuple(self.token_ids),
            finish_reason=self.finish.reason if self.finish is not None else "error",
            stop_reason=self.finish.matched_stop if self.finish is not None else None,
            logprobs=tuple(self.logprobs) if wants_logprobs else None,
            tool_calls=tuple(self.tool_calls),
            reasoning="".join(self.reasoning) or None,
        )


class Collector:
    """Gathers the events of one request."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._choices = [_Choice(index) for index in range(prepared.request.sampling.n)]
        self._error: Exception | None = None

    def add(self, event: ChatEvent) -> None:
        """One more event. Raises EngineDeadError: no other request would fare better."""
        if isinstance(event, Failed):
            if isinstance(event.error, EngineDeadError):
                raise event.error
            logger.warning("request %s failed: %s", self._prepared.request.request_id, event.error)
            self._error = event.error
        else:
            self._choices[event.choice].add(event)

    def output(
        self,
        *,
        usage: Usage,
        timings: RequestTimings | None,
        prompt_logprobs: tuple[TokenLogprob | None, ...] | None,
    ) -> RequestOutput:
        """The whole answer, after the last event."""
        request = self._prepared.request
        wants_logprobs = request.sampling.logprobs is not None
        return RequestOutput(
            request_id=request.request_id,
            prompt=self._prepared.prompt_text,
            prompt_token_ids=tuple(request.prompt_token_ids.tolist()),
            outputs=tuple(choice.output(wants_logprobs=wants_logprobs) for choice in self._choices),
            usage=usage,
            timings=timings,
            prompt_logprobs=prompt_logprobs,
            error=self._error,
        )


class DeltaMaker:
    """Turns the events of a stream into StreamDeltas."""

    def __init__(self, prepared: Prepared) -> None:
        self._prompt_tokens = len(prepared.request.prompt_token_ids)
        self._open: dict[int, PartStart] = {}
        self._arguments: dict[int, str] = {}

    def make(self, event: ChatEvent, timings: RequestTimings | None) -> StreamDelta | None:
        """The delta an event means, None for one that has nothing to show. Raises a Failed event's error."""
        match event:
            case Failed():
                raise event.error
            case PartStart():
                self._open[event.choice] = event
                self._arguments[event.choice] = ""
            case PartDelta():
                return self._delta(event)
            case PartEnd():
                return self._end(event.choice)
            case Finish():
                return StreamDelta(
                    index=event.choice,
                    prompt_tokens=self._prompt_tokens,
                    finished=True,
                    finish_reason=event.reason,
                    stop_reason=event.matched_stop,
                    usage=event.usage,
                    timings=timings,
                )
        return None

    def _end(self, choice: int) -> StreamDelta | None:
        part = self._open.pop(choice, None)
        if part is None or part.kind not in CALLS:
            return None
        call = ToolCall(part.id, part.name, self._arguments[choice])
        return StreamDelta(index=choice, prompt_tokens=self._prompt_tokens, tool_call=call)

    def _delta(self, event: PartDelta) -> StreamDelta:
        part = self._open.get(event.choice)
        kind = "text" if part is None else part.kind
        if kind in CALLS:
            self._arguments[event.choice] += event.text
        return StreamDelta(
            index=event.choice,
            text=event.text if kind == "text" else "",
            reasoning=event.text if kind == "reasoning" else "",
            token_ids=event.token_ids,
            prompt_tokens=self._prompt_tokens,
            logprobs=event.logprobs,
        )
