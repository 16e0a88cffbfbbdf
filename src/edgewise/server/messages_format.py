"""/v1/messages as the generating route sees it, and counting a prompt's tokens without generating."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import Request
from starlette.responses import Response

from edgewise.core.chat import ChatRequest
from edgewise.core.errors import ContextLengthError, InvalidRequestError
from edgewise.pipeline import MESSAGES, Pipeline, Prepared
from edgewise.protocols import anthropic
from edgewise.protocols.anthropic import ParsedMessages
from edgewise.protocols.anthropic_stream import AnthropicStreamEncoder
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.reply import PromptEcho, Reply, ReplyHead, ReplyOptions
from edgewise.protocols.stream import StreamEncoder
from edgewise.server.formats import refuse_hopeless
from edgewise.server.state import client_of, state_of
from edgewise.serving.errors import JsonResponse

_SCHEMA = re.compile(r"\b(tools\[\d+\])\.parameters\b")


class MessagesFormat:
    """/v1/messages."""

    id_prefix = "msg_"

    def parse(self, body: object) -> ParsedMessages:
        return anthropic.parse_request(body)

    def model_of(self, parsed: ParsedMessages) -> str:
        return parsed.chat.model

    def ignored_fields_of(self, parsed: ParsedMessages) -> tuple[str, ...]:
        return parsed.chat.ignored_fields

    def options_of(self, parsed: ParsedMessages) -> ReplyOptions:
        return parsed.reply

    def prepare(self, pipeline: Pipeline, parsed: ParsedMessages, request_id: str) -> list[Prepared]:
        return [_prepare(pipeline, parsed.chat, request_id)]

    def echoes(
        self, pipeline: Pipeline, parsed: ParsedMessages, prepared: Sequence[Prepared]
    ) -> list[PromptEcho]:
        """What the first event tells of the prompt, cached tokens as of now: just before it is submitted."""
        request = prepared[0].request
        cached_tokens = pipeline.engine.cached_prefix_len(request) if parsed.reply.stream else 0
        return [PromptEcho("", request.prompt_token_ids.tolist(), cached_tokens=cached_tokens)]

    def encode_response(
        self,
        head: ReplyHead,
        options: ReplyOptions,
        replies: Sequence[Reply],
        writer: LogprobWriter,
        echoes: Sequence[PromptEcho],
    ) -> Mapping[str, Any]:
        return anthropic.encode_response(head, replies[0])

    def stream_encoder(
        self, head: ReplyHead, options: ReplyOptions, writer: LogprobWriter, echoes: Sequence[PromptEcho]
    ) -> StreamEncoder:
        return AnthropicStreamEncoder(head, echoes[0])


async def count_tokens(request: Request) -> Response:
    """/v1/messages/count_tokens: what the same request would report, without the engine and beside running answers."""
    state = state_of(request)
    with state.side_gate.enter():
        parsed = await state.read(request, anthropic.parse_count)
        state.check_model(parsed.chat.model)
        state.ignored.note(client_of(request), request.url.path, parsed.chat.ignored_fields)
        return JsonResponse({"input_tokens": await state.run(_count, state.pipeline, parsed.chat)})


def _count(pipeline: Pipeline, request: ChatRequest) -> int:
    """The tokens of a prompt, also of one that does not fit: clients count to find out. Raises InvalidRequestError."""
    try:
        return len(_prepare(pipeline, request, "count").request.prompt_token_ids)
    except ContextLengthError as error:
        if error.at_least:
            raise
        return error.prompt_tokens


def _prepare(pipeline: Pipeline, request: ChatRequest, request_id: str) -> Prepared:
    """Errors and warnings name a tool's schema as this API does."""
    refuse_hopeless(pipeline, request)
    try:
        prepared = pipeline.prepare_chat(request, request_id=request_id, defaults=MESSAGES)
    except InvalidRequestError as error:
        error.message = _in_words_of_messages(error.message)
        raise
    return replace(prepared, warnings=tuple(map(_in_words_of_messages, prepared.warnings)))


def _in_words_of_messages(text: str) -> str:
    return _SCHEMA.sub(r"\1.input_schema", text)
