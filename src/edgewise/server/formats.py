"""The wire formats as the generating route sees them. A further one is a class with these methods and a line in `routes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from edgewise.core.chat import ChatRequest, TextPart
from edgewise.core.errors import ContextLengthError, InvalidRequestError
from edgewise.pipeline import Pipeline, Prepared
from edgewise.pipeline.defaults import CHAT, COMPLETIONS
from edgewise.protocols import chat, completions
from edgewise.protocols.chat_stream import ChatStreamEncoder
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.reply import PromptEcho, Reply, ReplyHead, ReplyOptions
from edgewise.protocols.stream import StreamEncoder

P = TypeVar("P")


class Format(Protocol[P]):
    """One generating endpoint. `prepare` blocks and runs in the executor; the others are quick."""

    id_prefix: str  # with its separator

    def parse(self, body: object) -> P: ...

    def model_of(self, parsed: P) -> str: ...

    def ignored_fields_of(self, parsed: P) -> tuple[str, ...]: ...

    def options_of(self, parsed: P) -> ReplyOptions: ...

    def prepare(self, pipeline: Pipeline, parsed: P, request_id: str) -> list[Prepared]: ...

    def echoes(self, pipeline: Pipeline, parsed: P, prepared: Sequence[Prepared]) -> list[PromptEcho]: ...

    def encode_response(
        self,
        head: ReplyHead,
        options: ReplyOptions,
        replies: Sequence[Reply],
        writer: LogprobWriter,
        echoes: Sequence[PromptEcho],
    ) -> Mapping[str, Any]: ...

    def stream_encoder(
        self, head: ReplyHead, options: ReplyOptions, writer: LogprobWriter, echoes: Sequence[PromptEcho]
    ) -> StreamEncoder: ...


class ChatFormat:
    """/v1/chat/completions."""

    id_prefix = "chatcmpl-"

    def __init__(self, *, trust_template: bool = False) -> None:
        self._trust_template = trust_template

    def parse(self, body: object) -> chat.ParsedChat:
        return chat.parse_request(body, trust_template=self._trust_template)

    def model_of(self, parsed: chat.ParsedChat) -> str:
        return parsed.chat.model

    def ignored_fields_of(self, parsed: chat.ParsedChat) -> tuple[str, ...]:
        return parsed.chat.ignored_fields

    def options_of(self, parsed: chat.ParsedChat) -> ReplyOptions:
        return parsed.reply

    def prepare(self, pipeline: Pipeline, parsed: chat.ParsedChat, request_id: str) -> list[Prepared]:
        request = parsed.chat
        refuse_hopeless(pipeline, request)
        if not request.reuse_context:
            request = replace(request, cache_salt=request_id)  # nobody else's blocks have it
        return [pipeline.prepare_chat(request, request_id=request_id, defaults=CHAT)]

    def echoes(
        self, pipeline: Pipeline, parsed: chat.ParsedChat, prepared: Sequence[Prepared]
    ) -> list[PromptEcho]:
        """Chat echoes the assistant turn that is being continued, never the template's text."""
        last = parsed.chat.messages[-1]
        text = last.text if parsed.reply.echo and parsed.chat.continue_final_message else ""
        return [PromptEcho(text, prepared[0].request.prompt_token_ids.tolist())]

    def encode_response(
        self,
        head: ReplyHead,
        options: ReplyOptions,
        replies: Sequence[Reply],
        writer: LogprobWriter,
        echoes: Sequence[PromptEcho],
    ) -> dict[str, Any]:
        return chat.encode_response(head, options, replies[0], writer, echoes[0])

    def stream_encoder(
        self, head: ReplyHead, options: ReplyOptions, writer: LogprobWriter, echoes: Sequence[PromptEcho]
    ) -> StreamEncoder:
        return ChatStreamEncoder(head, options, writer, echoes[0])


class CompletionFormat:
    """/v1/completions."""

    id_prefix = "cmpl-"

    def __init__(self, max_choices: int) -> None:
        self._max_choices = max_choices

    def parse(self, body: object) -> completions.CompletionRequest:
        request = completions.parse_request(body)
        num_choices = len(request.prompts) * request.reply.best_of
        if num_choices > self._max_choices:
            rule = f"asks for {num_choices} answers with n; at most {self._max_choices} are made at once"
            raise InvalidRequestError(f"prompt {rule}", param="prompt")
        return request

    def model_of(self, parsed: completions.CompletionRequest) -> str:
        return parsed.model

    def ignored_fields_of(self, parsed: completions.CompletionRequest) -> tuple[str, ...]:
        return parsed.ignored_fields

    def options_of(self, parsed: completions.CompletionRequest) -> ReplyOptions:
        return parsed.reply

    def prepare(
        self, pipeline: Pipeline, parsed: completions.CompletionRequest, request_id: str
    ) -> list[Prepared]:
        if len(parsed.prompts) == 1:
            return [self._prepare_one(pipeline, parsed, parsed.prompts[0], request_id)]
        prepared = []
        for i, prompt in enumerate(parsed.prompts):
            try:
                prepared.append(self._prepare_one(pipeline, parsed, prompt, f"{request_id}-{i}"))
            except InvalidRequestError as error:
                if error.param == "prompt":
                    error.param = f"prompt[{i}]"
                    error.message = f"prompt[{i}]: {error.message}"
                raise
        return prepared

    def _prepare_one(
        self,
        pipeline: Pipeline,
        parsed: completions.CompletionRequest,
        prompt: completions.Prompt,
        request_id: str,
    ) -> Prepared:
        return pipeline.prepare_prompt(
            prompt if parsed.suffix is None else fill_in_the_middle(pipeline, prompt, parsed),
            parsed.sampling,
            request_id=request_id,
            defaults=COMPLETIONS,
            add_special_tokens=parsed.add_special_tokens,
            priority=parsed.priority,
            cache_salt=parsed.cache_salt,
            output_format=parsed.output_format,
        )

    def echoes(
        self, pipeline: Pipeline, parsed: completions.CompletionRequest, prepared: Sequence[Prepared]
    ) -> list[PromptEcho]:
        return [self._echo(pipeline, parsed, one) for one in prepared]

    def _echo(
        self, pipeline: Pipeline, parsed: completions.CompletionRequest, prepared: Prepared
    ) -> PromptEcho:
        ids = prepared.request.prompt_token_ids.tolist()
        if not parsed.reply.echo:
            return PromptEcho("", ids)
        text = prepared.prompt_text
        return PromptEcho(
            pipeline.tokenizer.decode(ids, skip_special_tokens=False) if text is None else text, ids
        )

    def encode_response(
        self,
        head: ReplyHead,
        options: ReplyOptions,
        replies: Sequence[Reply],
        writer: LogprobWriter,
        echoes: Sequence[PromptEcho],
    ) -> dict[str, Any]:
        return completions.encode_response(head, options, replies, writer, echoes)

    def stream_encoder(
        self, head: ReplyHead, options: ReplyOptions, writer: LogprobWriter, echoes: Sequence[PromptEcho]
    ) -> StreamEncoder:
        return completions.CompletionStreamEncoder(head, options, writer, echoes)


def refuse_hopeless(pipeline: Pipeline, request: ChatRequest) -> None:
    """Refuse, before rendering it, a conversation whose text cannot fit the window even at the longest token."""
    num_chars = sum(
        len(part.text) for m in request.messages for part in m.parts if isinstance(part, TextPart)
    )
    num_tokens = num_chars // pipeline.tokenizer.max_token_bytes
    if num_tokens > pipeline.max_input_len:
        raise ContextLengthError(
            prompt_tokens=num_tokens, max_model_len=pipeline.max_input_len, param="messages", at_least=True
        )


def fill_in_the_middle(
    pipeline: Pipeline, prefix: completions.Prompt, parsed: completions.CompletionRequest
) -> list[int]:
    """The prompt, in token ids, that asks for the text between. Raises InvalidRequestError without such tokens."""
    suffix = parsed.suffix
    assert isinstance(prefix, str) and suffix is not None, (
        "parse_request lets a suffix through with text prompts only"
    )
    tokenizer = pipeline.tokenizer
    fim = tokenizer.fim
    if fim is None:
        raise InvalidRequestError(
            "suffix needs a model with fill-in-the-middle tokens, which this one lacks", param="suffix"
        )
    begin = tokenizer.encode("", add_special_tokens=parsed.add_special_tokens)
    return [*begin, fim.prefix, *tokenizer.encode(prefix), fim.suffix, *tokenizer.encode(suffix), fim.middle]


def with_usage_forced(options: ReplyOptions, forced: bool) -> ReplyOptions:
    """`--enable-force-include-usage`: every stream ends with usage, asked for or not."""
    return replace(options, include_usage=True) if forced and options.stream else options
