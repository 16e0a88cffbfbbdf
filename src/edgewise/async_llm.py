"""AsyncLLM: the same model and the same outputs for asyncio programs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self, Unpack

from edgewise.outputs import RequestOutput, StreamDelta
from edgewise.pipeline.collect import Collector, DeltaMaker
from edgewise.pipeline.frontend import (
    ChatFields,
    Conversation,
    Frontend,
    Prompt,
    SamplingArgument,
    conversation_list,
    prompt_list,
)
from edgewise.pipeline.prepare import Prepared
from edgewise.pipeline.stream import Stream


class AsyncLLM(Frontend):
    """Like `LLM`, with coroutines. Loading blocks: `await asyncio.to_thread(AsyncLLM, "name")` where that matters.

    Templates and tokenising run in the loop's executor. Cancelling a task cancels its requests.
    """

    async def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingArgument | Sequence[SamplingArgument] = None,
        *,
        request_id: str | None = None,
        structured_outputs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answers to one prompt or many, in order. `request_id` names the request for `abort`; of many, number i is "id-i"."""
        fields: dict[str, Any] = (
            {} if structured_outputs is None else {"structured_outputs": dict(structured_outputs)}
        )
        prepared = await asyncio.to_thread(
            self.prepare_all, prompt_list(prompts), sampling_params, request_id=request_id, **fields
        )
        return await self._run(prepared)

    async def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: SamplingArgument | Sequence[SamplingArgument] = None,
        *,
        request_id: str | None = None,
        **fields: Unpack[ChatFields],
    ) -> list[RequestOutput]:
        """Answers to one conversation or many, rendered with the model's template. `fields` as for `LLM.chat`."""
        prepared = await asyncio.to_thread(
            self.prepare_all, conversation_list(messages), sampling_params, request_id=request_id, **fields
        )
        return await self._run(prepared)

    async def generate_stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingArgument = None,
        *,
        request_id: str | None = None,
        **fields: Unpack[ChatFields],
    ) -> AsyncIterator[StreamDelta]:
        """The answer to one prompt or conversation as it is generated. Leaving the loop over it cancels the request."""
        prepared = await asyncio.to_thread(
            self.prepare, prompt, sampling_params, request_id=request_id, **fields
        )
        maker = DeltaMaker(prepared)
        with self.pipeline.start(prepared) as stream:
            async for event in stream:
                if (delta := maker.make(event, stream.timings)) is not None:
                    yield delta

    stream = generate_stream

    async def abort(self, request_id: str) -> None:
        """Cancel a request by the id it was given; it then ends with finish reason "cancelled". Unknown ids are no error."""
        self.pipeline.engine.cancel(request_id)

    async def close(self) -> None:
        """Cancel what runs and release the model. Safe to call twice."""
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, prepared: Sequence[Prepared]) -> list[RequestOutput]:
        """All requests together. However this ends, no request is left running: each stream cancels when it is closed."""
        streams: list[Stream] = []
        try:
            streams += (self.pipeline.start(one) for one in prepared)
            return list(await asyncio.gather(*map(_collect, streams)))
        finally:
            for stream in streams:
                stream.cancel()


async def _collect(stream: Stream) -> RequestOutput:
    collector = Collector(stream.prepared)
    async for event in stream:
        collector.add(event)
    return collector.output(
        usage=stream.usage, timings=stream.timings, prompt_logprobs=stream.prompt_logprobs
    )
