"""A request becomes tokens: size checks, the template, tokenising, sampling defaults. Blocking; any thread.

Everything that can be wrong with a request is found here, before it is queued. Nothing here touches the engine.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edgewise.chat import ChatTemplate, RenderedPrompt, encode_prompt
from edgewise.core.chat import ChatRequest, MediaPart
from edgewise.core.errors import ContextLengthError, InvalidRequestError, ModelError
from edgewise.core.grammar import OutputFormat
from edgewise.core.requests import GenerationRequest
from edgewise.core.sampling import MAX_ALTERNATIVES, UNLIMITED, SamplingParams
from edgewise.pipeline.answer import PLAIN, AnswerStyle
from edgewise.pipeline.chat_style import ChatStyle
from edgewise.pipeline.defaults import CHAT, COMPLETIONS, SamplingDefaults, fit_max_tokens, sampling_params
from edgewise.text import Tokenizer

Prompt = str | Sequence[int]
Sampling = SamplingParams | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready to start: nothing about it can fail any more except in the engine."""

    request: GenerationRequest
    prompt_text: str | None  # as tokenised; None for prompts given as token ids
    style: AnswerStyle = PLAIN
    warnings: tuple[str, ...] = ()  # what of the request is honoured only in part


@dataclass(frozen=True)
class Preparer:
    """What a model and its window ask of a request. Immutable; shared by all threads."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    max_model_len: int
    max_input_len: int
    vocab_size: int
    style: ChatStyle
    template_fault: str = ""  # why there is no template, where the model has one
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    eos_token_ids: frozenset[int] = frozenset()

    def prepare_chat(
        self,
        request: ChatRequest,
        *,
        request_id: str,
        defaults: SamplingDefaults = CHAT,
        sampling: SamplingParams | None = None,
    ) -> Prepared:
        """Render and tokenise a conversation. `sampling` stands in for `request.sampling` and all defaults.

        Raises InvalidRequestError, ContextLengthError.
        """
        arrival_s = time.monotonic()
        params = self._sampling(request.sampling if sampling is None else sampling, defaults)
        text, ids, borders = self.render(request, params)
        prepared = self._prepared(
            ids, params, text=text, request_id=request_id, arrival_s=arrival_s, param="messages"
        )
        bound = self.style.bind(request, prepared.request.sampling, text)
        return replace(
            prepared,
            request=replace(
                prepared.request,
                priority=request.priority,
                cache_salt=request.cache_salt,
                cache_output=request.cache_generated_tokens,
                cache_borders=tuple(borders),
                constraint=bound.constraint,
            ),
            style=bound.style,
            warnings=bound.warnings,
        )

    def prepare_prompt(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        request_id: str,
        defaults: SamplingDefaults = COMPLETIONS,
        add_special_tokens: bool = True,
        parse_special: bool = True,
        priority: int = 0,
        cache_salt: str = "",
        output_format: OutputFormat | None = None,
    ) -> Prepared:
        """Tokenise a raw prompt, or check one given as token ids. Raises InvalidRequestError, ContextLengthError.

        A raw prompt is its author's own template, so control tokens written in it count unless `parse_special` is off.
        """
        arrival_s = time.monotonic()
        params = self._sampling(sampling, defaults)
        text = prompt if isinstance(prompt, str) else None
        if isinstance(prompt, str):
            self._check_text(prompt, "prompt")
            ids = self._encode(prompt, add_special_tokens, parse_special)
        else:
            ids = self._check_ids(prompt)
        prepared = self._prepared(
            ids, params, text=text, request_id=request_id, arrival_s=arrival_s, param="prompt"
        )
        make, warnings = self.style.bind_text(output_format)
        request = replace(prepared.request, priority=priority, cache_salt=cache_salt, constraint=make)
        return replace(prepared, request=request, warnings=warnings)

    def _sampling(self, given: Sampling, defaults: SamplingDefaults) -> SamplingParams:
        if isinstance(given, SamplingParams):
            return given
        return sampling_params(given, generation_config=self.generation_config, defaults=defaults)

    def render(
        self, request: ChatRequest, sampling: SamplingParams
    ) -> tuple[str, npt.NDArray[np.int32], Sequence[int]]:
        """A conversation as text, as token ids i32[P], and the positions where its messages end. Raises InvalidRequestError."""
        if not request.messages:
            raise InvalidRequestError("messages must not be empty", param="messages")
        for message in request.messages:
            for part in message.parts:
                if isinstance(part, MediaPart):
                    path = part.path or f"messages[{message.index}].content"
                    raise InvalidRequestError(
                        f"{path} holds {part.kind} input; this model takes text only", param=path
                    )
                self._check_text(part.text, f"messages[{message.index}].content")
        rendered = self.rendered(request, sampling)
        self._check_text(rendered.text, "messages")
        ids, borders = encode_prompt(self.tokenizer, rendered)
        return rendered.text, np.asarray(ids, np.int32), borders

    def rendered(self, request: ChatRequest, sampling: SamplingParams | None = None) -> RenderedPrompt:
        """A conversation as text, of any length. Raises InvalidRequestError."""
        if not request.apply_chat_template:
            text = "".join(message.text for message in request.messages)
            return RenderedPrompt(text, (text,))
        with self._template_of(request) as template:
            return template.render(
                request.messages,
                tools=request.tools,
                add_generation_prompt=request.add_generation_prompt,
                continue_final_message=request.continue_final_message,
                kwargs={**self.style.template_variables(request, sampling), **request.template_kwargs},
                tool_dialect=self.style.tools,
            )

    @contextlib.contextmanager
    def _template_of(self, request: ChatRequest) -> Iterator[ChatTemplate]:
        """The model's template, or the request's own for as long as it is needed. Raises InvalidRequestError."""
        if request.chat_template is not None:
            try:
                template = ChatTemplate(
                    request.chat_template,
                    bos_token=self.tokenizer.bos_token,
                    eos_token=self.tokenizer.eos_token,
                    control_tokens=self.tokenizer.control_tokens,
                )
            except ModelError as error:
                raise InvalidRequestError(f"chat_template: {error.message}", param="chat_template") from None
            with contextlib.closing(template):
                yield template
        elif self.template is not None:
            yield self.template
        else:
            raise InvalidRequestError(
                f"this model's chat template cannot be used: {self.template_fault}"
                if self.template_fault
                else "this model has no chat template",
                param="messages",
                hint="send a raw prompt to the completions API, or start with another template (--chat-template)",
            )

    def _check_text(self, text: str, param: str) -> None:
        """Refuse, before tokenising, what is not Unicode text and what could not fit even at the longest token."""
        try:
            num_bytes = len(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidRequestError(
                f"{param} is not valid Unicode: lone surrogate {text[error.start]!a} at character {error.start}",
                param=param,
            ) from None
        num_tokens = -(-num_bytes // self.tokenizer.max_token_bytes)
        if num_tokens > self.max_input_len:
            raise ContextLengthError(
                prompt_tokens=num_tokens, max_model_len=self.max_input_len, param=param, at_least=True
            )

    def _encode(self, text: str, add_special_tokens: bool, parse_special: bool) -> npt.NDArray[np.int32]:
        ids = self.tokenizer.encode(text, add_special_tokens=add_special_tokens, parse_special=parse_special)
        return np.asarray(ids, np.int32)

    def _check_ids(self, ids: Sequence[int]) -> npt.NDArray[np.int32]:
        """Token ids as i32[P]. The vocabulary bounds them; bools and floats are not ids."""
        array = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids))
        if array.size and (array.dtype.kind not in "iu" or array.ndim != 1):
            raise InvalidRequestError("prompt must be text or a flat list of token ids", param="prompt")
        outside = np.flatnonzero((array < 0) | (array >= self.vocab_size)) if array.size else array
        if outside.size:
            at = int(outside[0])
            raise InvalidRequestError(
                f"token id {int(array[at])} at position {at} is outside the vocabulary (0 to {self.vocab_size - 1})",
                param="prompt",
            )
        return array.astype(np.int32)

    def _prepared(
        self,
        ids: npt.NDArray[np.int32],
        sampling: SamplingParams,
        *,
        text: str | None,
        request_id: str,
        arrival_s: float,
        param: str,
    ) -> Prepared:
        self._check_length(len(ids), sampling, param)
        sampling = fit_max_tokens(sampling, prompt_len=len(ids), max_model_len=self.max_model_len)
        self._check_alternatives(sampling, len(ids))
        request = GenerationRequest(
            request_id=request_id,
            prompt_token_ids=ids,
            sampling=sampling,
            eos_token_ids=self.tokenizer.eos_token_ids | self.eos_token_ids,
            outputs_from=None if sampling.prompt_logprobs is None else 0,
            bad_word_ids=self._bad_word_ids(sampling.bad_words),
            arrival_s=arrival_s,
        )
        return Prepared(request, text)

    def _check_length(self, num_tokens: int, sampling: SamplingParams, param: str) -> None:
        """A prompt has tokens, and leaves room for one more unless none is wanted."""
        if num_tokens == 0:
            raise InvalidRequestError(f"{param} must not be empty", param=param)
        if num_tokens > self.max_input_len:
            raise ContextLengthError(prompt_tokens=num_tokens, max_model_len=self.max_input_len, param=param)
        wanted = 0 if sampling.max_tokens == 0 else 1
        if num_tokens + wanted > self.max_model_len:
            raise ContextLengthError(prompt_tokens=num_tokens, max_model_len=self.max_model_len, param=param)

    def _check_alternatives(self, sampling: SamplingParams, prompt_len: int) -> None:
        """Refuse more log probabilities than memory should hold; they are all kept until the answer is complete."""
        answer_len = sampling.n * (sampling.max_tokens or 0)
        wanted = (
            ("logprobs", sampling.logprobs, answer_len),
            ("prompt_logprobs", sampling.prompt_logprobs, prompt_len),
        )
        for name, num, num_tokens in wanted:
            each = self.vocab_size if num == UNLIMITED else num or 0
            if each * num_tokens > MAX_ALTERNATIVES:
                raise InvalidRequestError(
                    f"{name} of {each} for up to {num_tokens} tokens are more than {MAX_ALTERNATIVES}; ask for fewer of either",
                    param=name,
                )

    def _bad_word_ids(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Each word as it is tokenised at the start of a text and after a space, where the two differ."""
        found: list[tuple[int, ...]] = []
        for word in words:
            plain, spaced = (tuple(self.tokenizer.encode(prefix + word)) for prefix in ("", " "))
            found.append(plain)
            if spaced[-len(plain) :] != plain:
                found.append(spaced)
        return tuple(found)
