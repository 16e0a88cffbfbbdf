"""LLM: a model in this process, called from ordinary code."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
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


class LLM(Frontend):
    """A model, loaded from exactly one of `model`, `engine_dir` and `onnx_dir`.

    All methods may be called from many threads at once; their requests run together. Sampling parameters are a
    `SamplingParams`, a mapping of some of its fields (the model's and the API's defaults fill in the rest), or None.
    """

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingArgument | Sequence[SamplingArgument] = None,
        *,
        structured_outputs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answers to one prompt or many (text, token ids, or messages), in order.

        `structured_outputs` binds them all: one of json (a schema), regex, choice, grammar, json_object, structural_tag.
        A request that fails alone (a logits processor that raises) gives an output with finish reason "error" and `error` set.
        Ctrl-C cancels all of them. Raises InvalidRequestError before anything starts, OverloadedError, EngineDeadError.
        """
        fields: dict[str, Any] = (
            {} if structured_outputs is None else {"structured_outputs": dict(structured_outputs)}
        )
        return self._run(self.prepare_all(prompt_list(prompts), sampling_params, **fields))

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: SamplingArgument | Sequence[SamplingArgument] = None,
        **fields: Unpack[ChatFields],
    ) -> list[RequestOutput]:
        """Answers to one conversation or many, rendered with the model's template. A trailing assistant turn is continued.

        `fields`: tools, tool_choice, response_format and the others of `ChatFields`. Calls are in each output's `tool_calls`.
        """
        return self._run(self.prepare_all(conversation_list(messages), sampling_params, **fields))

    def generate_stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingArgument = None,
        **fields: Unpack[ChatFields],
    ) -> Generator[StreamDelta, None, None]:
        """The answer to one prompt or conversation as it is generated. Dropping the iterator cancels the request."""
        prepared = self.prepare(prompt, sampling_params, **fields)
        return _deltas(self.pipeline.start(prepared))

    def serve(
        self, host: str = "127.0.0.1", port: int = 8000, *, api_key: str | None = None, **options: Any
    ) -> None:
        """Serve this model over HTTP until interrupted. `options` are further fields of `server.ServerOptions`.

        The model stays loaded afterwards. Raises ConfigError for an unknown option or an address that cannot be had.
        """
        from edgewise.config import from_mapping
        from edgewise.server import ServerOptions, serve

        given = {"host": host, "port": port, **options}
        if api_key:
            given["api_keys"] = (*options.get("api_keys", ()), api_key)
        serve(self.pipeline, from_mapping(ServerOptions, given))

    def close(self) -> None:
        """Cancel what runs and release the model. Safe to call twice."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, prepared: Sequence[Prepared]) -> list[RequestOutput]:
        group = self.pipeline.start_all(prepared)
        collectors = [Collector(one) for one in prepared]
        for index, event in group:
            collectors[index].add(event)
        return [
            collector.output(usage=a.usage, timings=a.timings, prompt_logprobs=a.prompt_logprobs)
            for collector, a in zip(collectors, group.answers, strict=True)
        ]


def _deltas(stream: Stream) -> Generator[StreamDelta, None, None]:
    maker = DeltaMaker(stream.prepared)
    with stream:
        for event in stream:
            if (delta := maker.make(event, stream.timings)) is not None:
                yield delta
