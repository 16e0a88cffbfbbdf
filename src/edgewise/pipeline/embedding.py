"""Embeddings: texts become requests without output, and the engine's vectors come back in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from edgewise.core.errors import InvalidRequestError, RequestCancelledError
from edgewise.core.requests import GenerationRequest, Pooling, TokenEvent
from edgewise.engine import Engine
from edgewise.pipeline.pipeline import Pipeline

Vector = npt.NDArray[np.float32]


def prepare_embeddings(
    pipeline: Pipeline,
    texts: Sequence[str | Sequence[int]],
    pooling: Pooling,
    *,
    request_id: str,
    add_special_tokens: bool = True,
    cache_salt: str = "",
) -> list[GenerationRequest]:
    """Tokenise all texts. Blocking; any thread. Raises InvalidRequestError, ContextLengthError naming the input."""
    requests = []
    for i, text in enumerate(texts):
        try:
            prepared = pipeline.prepare_prompt(
                text,
                {"max_tokens": 0},
                request_id=f"{request_id}-{i}",
                add_special_tokens=add_special_tokens,
                parse_special=False,
                cache_salt=cache_salt,
            )
        except InvalidRequestError as error:
            error.param = "input" if len(texts) == 1 else f"input[{i}]"
            raise
        first = 0 if pooling == "mean" else None
        requests.append(replace(prepared.request, pooling=pooling, outputs_from=first))
    return requests


async def embed(engine: Engine, requests: Sequence[GenerationRequest]) -> list[Vector]:
    """The pooled vector f32[E] of every request, in order. Where one fails, or this is cancelled, all are cancelled.

    Not all are submitted at once, so that a long list neither fills the queue nor holds up what comes after it.
    """
    places = asyncio.Semaphore(engine.config.max_num_seqs)

    async def one(request: GenerationRequest) -> Vector:
        async with places:
            return await _embed_one(engine, request)

    tasks = [asyncio.create_task(one(request)) for request in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _embed_one(engine: Engine, request: GenerationRequest) -> Vector:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[TokenEvent] = loop.create_future()

    def settle(event: TokenEvent) -> None:
        if not ended.done():
            ended.set_result(event)

    def sink(event: TokenEvent) -> None:
        loop.call_soon_threadsafe(settle, event)

    engine.submit(request, sink)
    try:
        event = await ended
    except asyncio.CancelledError:
        engine.cancel(request.request_id)
        raise
    if event.error is not None:
        raise event.error
    if event.embedding is None:
        raise RequestCancelledError("the request was cancelled")
    return event.embedding
