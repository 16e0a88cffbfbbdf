"""Everything that generates nothing: models, health, versions, metrics, tokens, the prefix cache."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

import edgewise
from edgewise.core.errors import InvalidRequestError
from edgewise.pipeline import Pipeline
from edgewise.protocols.models import encode_models
from edgewise.protocols.tokenize import (
    TokenizeRequest,
    encode_detokenize,
    encode_tokenize,
    parse_detokenize,
    parse_tokenize,
)
from edgewise.server import info, metrics, tokenizing
from edgewise.server.state import client_of, state_of
from edgewise.serving.errors import HttpError, JsonResponse

router = APIRouter()

_MAX_ID_BYTES = 16  # of a token id in JSON, with what stands around it


def greeting(request: Request) -> str:
    return f"Edgewise {edgewise.__version__} serves {state_of(request).model_name}.\n"


@router.api_route("/", methods=["GET", "HEAD"])
async def root(request: Request) -> Response:
    """One line for people and programs that open the address, where the page does not; clients probe it with HEAD."""
    return PlainTextResponse(greeting(request))


@router.api_route("/health", methods=["GET", "HEAD"])
@router.api_route("/v1/health", methods=["GET", "HEAD"])
async def health(request: Request) -> Response:
    """200 while requests can be answered, 503 once the engine has stopped."""
    state = state_of(request)
    stats = state.pipeline.engine.stats()
    alive = state.pipeline.engine.error is None
    body = {
        "status": "ok" if alive else "error",
        "model": state.model_name,
        "active_requests": stats.num_running,
        "queued_requests": stats.num_waiting,
    }
    return JsonResponse(body, 200 if alive else 503)


@router.api_route("/ping", methods=["GET", "HEAD", "POST"])
async def ping(request: Request) -> Response:
    return Response(status_code=200 if state_of(request).pipeline.engine.error is None else 503)


@router.get("/version")
async def version() -> Response:
    return JsonResponse({"version": edgewise.__version__})


@router.get("/v1/models")
@router.get("/models")
async def list_models(request: Request) -> Response:
    return JsonResponse(encode_models(info.models(state_of(request))))


@router.get("/v1/models/{name:path}")
async def one_model(request: Request, name: str) -> Response:
    for model in info.models(state_of(request)):
        if model["id"] == name:
            return JsonResponse(model)
    raise InvalidRequestError(
        f"The model {name!r} is not served here.", param="model", code="model_not_found"
    )


@router.get("/props")
async def props(request: Request) -> Response:
    state = state_of(request)
    return JsonResponse(info.props(state, state.pipeline.engine.stats()))


@router.get("/server_info")
async def server_info(request: Request) -> Response:
    return JsonResponse(info.server_info(state_of(request)))


@router.get("/metrics")
async def prometheus(request: Request) -> Response:
    state = state_of(request)
    if state.collector is None:
        raise HttpError(404, "Metrics are turned off on this server.", code="not_found")
    return Response(await state.run(metrics.render, state.collector), media_type=metrics.CONTENT_TYPE)


@router.post("/reset_prefix_cache")
async def reset_prefix_cache(request: Request) -> Response:
    """Whether every block could be let go; blocks in use stay."""
    state = state_of(request)
    return JsonResponse({"success": bool(await state.run(state.pipeline.engine.reset_prefix_cache))})


@router.post("/tokenize")
async def tokenize(request: Request) -> Response:
    state = state_of(request)
    with state.side_gate.enter():
        parsed = await state.read(request, parse_tokenize)
        state.check_model(parsed.model)
        state.ignored.note(client_of(request), "/tokenize", parsed.ignored_fields)
        return await state.run(_tokenized, state.pipeline, parsed)


def _tokenized(pipeline: Pipeline, request: TokenizeRequest) -> Response:
    ids = tokenizing.tokenize(pipeline, request)
    strs = (
        [pipeline.tokenizer.token_text(token_id) for token_id in ids] if request.return_token_strs else None
    )
    return JsonResponse(encode_tokenize(ids, strs, pipeline.max_model_len))


@router.post("/detokenize")
async def detokenize(request: Request) -> Response:
    state = state_of(request)
    with state.side_gate.enter():
        longest = tokenizing.max_ids(state.pipeline) * _MAX_ID_BYTES
        ids = await state.read(request, parse_detokenize, max_bytes=longest)
        return JsonResponse(encode_detokenize(await state.run(tokenizing.detokenize, state.pipeline, ids)))
