"""The route every generating endpoint takes: admit, read, parse, prepare, start, then answer in one piece or stream.

Everything that can fail because of the request fails before the first header.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import TypeVar

from fastapi import Request
from starlette.responses import Response

from edgewise.pipeline import Prepared
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.reply import PromptEcho, ReplyHead
from edgewise.server.exchange import Exchange
from edgewise.server.formats import Format, with_usage_forced
from edgewise.server.state import ServerState, client_of, state_of
from edgewise.serving.errors import JsonResponse, error_response
from edgewise.serving.event_stream import EventStreamResponse

P = TypeVar("P")
_MANY_CHOICES = 8


async def generate(request: Request, form: Format[P]) -> Response:
    """Answer one request of a format. Errors before the headers become error answers, later ones events."""
    state = state_of(request)
    exchange = Exchange(request, state.gate.enter())
    try:
        response = await _answer(request, state, form, exchange)
    except BaseException as error:
        exchange.close()
        if not isinstance(error, Exception):
            raise
        return error_response(error, request.scope)
    if not isinstance(response, EventStreamResponse):
        exchange.close()
    return response


async def _answer(request: Request, state: ServerState, form: Format[P], exchange: Exchange) -> Response:
    parsed = await state.read(request, form.parse, bounded=True)
    state.check_model(form.model_of(parsed))
    state.ignored.note(client_of(request), request.url.path, form.ignored_fields_of(parsed))
    exchange.watch_client()
    request_id = f"{form.id_prefix}{uuid.uuid4().hex}"
    prepared = await state.run(form.prepare, state.pipeline, parsed, request_id)
    for one in prepared:
        state.ignored.warn(client_of(request), request.url.path, one.warnings)
    if any(one.request.priority for one in prepared) and not state.heeds_priority:
        state.ignored.note(client_of(request), request.url.path, ("priority",))
    options = with_usage_forced(form.options_of(parsed), state.options.force_include_usage)
    echoes = form.echoes(state.pipeline, parsed, prepared)
    source = exchange.start(state.pipeline, prepared, options.best_of)
    head = ReplyHead(options.request_id or request_id, int(time.time()), state.model_name)
    writer = LogprobWriter(state.pipeline.tokenizer, tokens_as_ids=options.tokens_as_ids)
    large = _may_be_large(prepared, options.best_of)
    if not options.stream:
        replies = await exchange.gather(options.best_of)
        _note_prompt_logprobs(exchange, echoes)
        state.num_bare_calls += exchange.num_bare_calls

        def whole() -> Response:
            return JsonResponse(form.encode_response(head, options, replies, writer, echoes))

        return await state.run(whole) if large else whole()

    def close() -> None:
        state.num_bare_calls += exchange.num_bare_calls
        exchange.close()

    return EventStreamResponse(
        source,
        form.stream_encoder(head, options, writer, echoes),
        keep_alive_s=state.options.keep_alive_s,
        before_encode=lambda: _note_prompt_logprobs(exchange, echoes),
        on_close=close,
        encode_beside=state.run if large else None,
    )


def _may_be_large(prepared: Sequence[Prepared], num_choices: int) -> bool:
    """Whether writing the answer may hold the event loop up: megabytes come of alternatives and of many choices only."""
    if len(prepared) * num_choices > _MANY_CHOICES:
        return True
    asked = (one.request.sampling for one in prepared)
    return any(sampling.prompt_logprobs is not None or sampling.logprobs for sampling in asked)


def _note_prompt_logprobs(exchange: Exchange, echoes: list[PromptEcho]) -> None:
    """The prompt's logprobs come with its first token, after the echoes were made."""
    for echo, stream in zip(echoes, exchange.streams, strict=True):
        echo.logprobs = stream.prompt_logprobs
