"""What LLM and AsyncLLM have in common: making the pipeline, preparing prompts of any kind, closing."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack, cast

import numpy as np

from edgewise.checkpoints.progress import ProgressCallback
from edgewise.core.chat import ChatRequest
from edgewise.core.errors import EngineDeadError, InvalidRequestError
from edgewise.core.sampling import SamplingParams
from edgewise.pipeline.arguments import LLMArguments, config_from_arguments
from edgewise.pipeline.defaults import PYTHON
from edgewise.pipeline.load import load_pipeline
from edgewise.pipeline.pipeline import Pipeline
from edgewise.pipeline.prepare import Prepared
from edgewise.protocols.chat import read_template_kwargs
from edgewise.protocols.fields import Fields
from edgewise.protocols.messages import read_messages, trailing_turn
from edgewise.protocols.reasoning_fields import read_reasoning
from edgewise.protocols.structured import read_output_format
from edgewise.protocols.tools import read_tools
from edgewise.text import Tokenizer

Conversation = Sequence[Mapping[str, Any]]
Prompt = str | Sequence[int] | Conversation
SamplingArgument = SamplingParams | Mapping[str, Any] | None


class ChatFields(TypedDict, total=False):
    """What a call may say about a conversation beside its messages, under the names of the chat completions API.

    Every other spelling that API accepts (`guided_json`, `thinking`, ...) works too.
    """

    chat_template_kwargs: Mapping[str, Any] | None
    add_generation_prompt: bool | None
    continue_final_message: bool | None
    tools: Sequence[Mapping[str, Any]] | None
    tool_choice: str | Mapping[str, Any] | None
    parallel_tool_calls: bool | None
    response_format: Mapping[str, Any] | None
    structured_outputs: Mapping[str, Any] | None
    reasoning_effort: str | None


_numbers = itertools.count(1)


class Frontend:
    """A loaded model. Thread-safe. The model is released by `close`, when collected, or at the latest when Python ends."""

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        engine_dir: str | Path | None = None,
        onnx_dir: str | Path | None = None,
        progress: ProgressCallback | None = None,
        **arguments: Unpack[LLMArguments],
    ) -> None:
        """Load from exactly one of `model` (catalog name, hub id, file, folder), `engine_dir` and `onnx_dir`.

        `progress` hears of downloads and of the build on first use.
        `arguments` are the fields of `config.EngineOptions`, `ModelOptions` and `CacheOptions`, and TensorRT Edge-LLM's names
        for them. Raises ConfigError, ModelError, DownloadError.
        """
        config = config_from_arguments(model, engine_dir, onnx_dir, arguments)
        self._adopt(load_pipeline(config, progress=progress))

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> Self:
        """Over a pipeline that exists already, which then belongs to this object."""
        made = cls.__new__(cls)
        made._adopt(pipeline)
        return made

    def _adopt(self, pipeline: Pipeline) -> None:
        self._loaded = pipeline
        self._release = weakref.finalize(self, pipeline.close)

    @property
    def pipeline(self) -> Pipeline:
        """Raises EngineDeadError after `close`."""
        if not self._release.alive:
            raise EngineDeadError(f"this {type(self).__name__} is closed")
        return self._loaded

    @property
    def tokenizer(self) -> Tokenizer:
        return self._loaded.tokenizer

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer, under vLLM's name."""
        return self.tokenizer

    @property
    def model_name(self) -> str:
        return self._loaded.model_name

    @property
    def max_model_len(self) -> int:
        return self._loaded.max_model_len

    def _close(self) -> None:
        self._release()

    def prepare(
        self,
        prompt: Prompt,
        sampling: SamplingArgument,
        *,
        request_id: str | None = None,
        **fields: Any,
    ) -> Prepared:
        """A raw prompt (text or token ids) or a conversation, tokenised.

        `fields` are those of a chat completion beside messages and sampling (see `ChatFields`); of a raw prompt only those of structured
        output. Raises InvalidRequestError for an unknown one.
        """
        if sampling is not None and not isinstance(sampling, SamplingParams | Mapping):
            raise _no_sampling(sampling)
        request_id = request_id or f"python-{next(_numbers)}"
        conversation = _conversation(prompt)
        if conversation is None:
            raw = cast("str | Sequence[int]", prompt)
            asked = Fields.of(fields, "")
            output_format = read_output_format(asked)
            _refuse_unread(asked)
            return self.pipeline.prepare_prompt(
                raw, sampling or {}, request_id=request_id, defaults=PYTHON, output_format=output_format
            )
        request = _chat_request([dict(message) for message in conversation], fields)
        params = sampling if isinstance(sampling, SamplingParams) else None
        request = replace(request, sampling=dict(sampling or {}) if params is None else {})  # type: ignore[arg-type]
        return self.pipeline.prepare_chat(request, request_id=request_id, defaults=PYTHON, sampling=params)

    def prepare_all(
        self,
        prompts: Sequence[Prompt],
        sampling: SamplingArgument | Sequence[SamplingArgument],
        *,
        request_id: str | None = None,
        **chat: Any,
    ) -> list[Prepared]:
        """All prompts with their parameters: one for all, or one each. Nothing starts unless all are right."""
        if not prompts:
            raise InvalidRequestError("prompts must not be empty", param="prompts")
        if sampling is None or isinstance(sampling, SamplingParams | Mapping):
            sampling = [sampling] * len(prompts)
        if not isinstance(sampling, Sequence):
            raise _no_sampling(sampling)
        if len(sampling) != len(prompts):
            raise InvalidRequestError(
                f"{len(prompts)} prompts but {len(sampling)} sampling parameters", param="sampling_params"
            )
        several = len(prompts) > 1
        return [
            self.prepare(
                prompt, one, request_id=f"{request_id}-{i}" if request_id and several else request_id, **chat
            )
            for i, (prompt, one) in enumerate(zip(prompts, sampling, strict=True))
        ]


def _chat_request(messages: list[dict[str, Any]], given: Mapping[str, Any]) -> ChatRequest:
    fields = Fields.of({"messages": messages, **given}, "")
    turns, opens, continues = trailing_turn(read_messages(fields), fields)
    asked = read_tools(fields)
    request = ChatRequest(
        messages=turns,
        tools=asked.tools,
        tool_choice=asked.choice,
        output_format=read_output_format(fields),
        reasoning=read_reasoning(fields),
        add_generation_prompt=opens,
        continue_final_message=continues,
        template_kwargs=read_template_kwargs(fields),
    )
    _refuse_unread(fields)
    return request


def _refuse_unread(fields: Fields) -> None:
    for name in fields.unread():
        raise InvalidRequestError(f"unknown field {name!r}", param=name)


def prompt_list(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    """One prompt or many (of any ordered kind of iterable) -> many. Raises InvalidRequestError for what is neither."""
    if isinstance(prompts, str | np.ndarray):
        return [prompts]
    if isinstance(prompts, bytes | bytearray | Mapping | Set) or not isinstance(prompts, Iterable):
        raise _no_prompt(prompts, "prompts")
    many = list(prompts)
    if many and isinstance(many[0], int | np.integer | Mapping):
        return [cast("Prompt", many)]
    return cast("Sequence[Prompt]", many)


def _no_prompt(value: object, param: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{param} must be text, token ids, messages, or a list of these; got a value of type {type(value).__name__}",
        param=param,
    )


def _no_sampling(value: object) -> InvalidRequestError:
    return InvalidRequestError(
        "sampling_params must be SamplingParams, a mapping of its fields, or a list with one for each prompt; "
        f"got a value of type {type(value).__name__}",
        param="sampling_params",
    )


def conversation_list(messages: Conversation | Sequence[Conversation]) -> Sequence[Prompt]:
    """One conversation or many -> many. Raises InvalidRequestError for anything else."""
    conversations = prompt_list(messages)
    for conversation in conversations:
        if _conversation(conversation) is None:
            raise InvalidRequestError(
                "messages must be a list of {'role': ..., 'content': ...} or a list of such lists",
                param="messages",
            )
    return conversations


def _conversation(prompt: Prompt) -> Conversation | None:
    """The prompt when it is messages; None for text and token ids. Raises InvalidRequestError for everything else."""
    if not isinstance(prompt, str | np.ndarray | Sequence) or isinstance(prompt, bytes | bytearray):
        raise _no_prompt(prompt, "prompt")
    if isinstance(prompt, str | np.ndarray) or not len(prompt) or not isinstance(prompt[0], Mapping):
        return None
    return cast("Conversation", prompt)
