"""/v1/embeddings: admit, read, tokenise, pool, answer. A client that leaves cancels what it asked for."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from edgewise.core.errors import InvalidRequestError
from edgewise.pipeline.embedding import embed, prepare_embeddings
from edgewise.protocols.embeddings import EmbeddingRequest, encode_response, parse_request
from edgewise.server.state import ServerState, client_of, state_of
from edgewise.serving.errors import ClientGoneError, JsonResponse

T = TypeVar("T")

router = APIRouter()


@router.post("/v1/embeddings")
@router.post("/embeddings")
async def embeddings(request: Request) -> Response:
    state = state_of(request)
    ticket = state.gate.enter()
    try:
        parsed = await state.read(request, parse_request)
        _check(state, parsed)
        state.ignored.note(client_of(request), request.url.path, parsed.ignored_fields)
        prepared = await state.run(
            prepare_embeddings,
            state.pipeline,
            parsed.inputs,
            parsed.pooling or state.options.pooling,
            request_id=f"embd-{uuid.uuid4().hex}",
            add_special_tokens=parsed.add_special_tokens,
            cache_salt=parsed.cache_salt,
        )
        vectors = await _while_client_stays(request, embed(state.pipeline.engine, prepared))
        num_tokens = sum(len(one.prompt_token_ids) for one in prepared)
        return JsonResponse(encode_response(parsed, state.model_name, vectors, num_tokens))
    finally:
        ticket.leave()


def _check(state: ServerState, parsed: EmbeddingRequest) -> None:
    """Raises InvalidRequestError for a model that is not served, and for more dimensions than its vectors have."""
    state.check_model(parsed.model)
    width = state.pipeline.engine.embed_dim
    if parsed.dimensions is not None and parsed.dimensions > width:
        raise InvalidRequestError(
            f"dimensions must be at most {width}, the length of this model's vectors, got {parsed.dimensions}",
            param="dimensions",
        )


async def _while_client_stays(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client leaves. Raises ClientGoneError then."""
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_until_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError("the client closed its connection")
        return task.result()
    finally:
        gone.cancel()
        task.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
