"""/v1/responses: making one, counting its input, and coming back to one that is kept: read, delete, list its input, cancel."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from fastapi import APIRouter, Request
from starlette.responses import Response

from edgewise.server.generate import generate
from edgewise.server.options import ServerOptions
from edgewise.server.responses_format import ResponsesFormat, StreamedResponses
from edgewise.server.state import state_of
from edgewise.serving.auth import owner_of
from edgewise.serving.errors import HttpError, JsonResponse
from edgewise.serving.response_lists import page_of
from edgewise.serving.response_store import ResponseStore


def responses_router(options: ServerOptions) -> APIRouter:
    router = APIRouter()
    store = ResponseStore(options.max_stored_responses, options.max_stored_response_bytes)
    streamed: StreamedResponses = WeakValueDictionary()

    def form_of(request: Request) -> ResponsesFormat:
        return ResponsesFormat(store.of(owner_of(request.scope)), streamed)

    @router.post("/v1/responses")
    @router.post("/responses")
    async def create(request: Request) -> Response:
        return await generate(request, form_of(request))

    @router.post("/v1/responses/input_tokens")
    async def count(request: Request) -> Response:
        state, form = state_of(request), form_of(request)
        with state.side_gate.enter():
            parsed = await state.read(request, form.parse)
            state.check_model(form.model_of(parsed))
            num_tokens = await state.run(form.count, state.pipeline, parsed)
        return JsonResponse({"object": "response.input_tokens", "input_tokens": num_tokens})

    @router.get("/v1/responses/{response_id}")
    async def read(response_id: str, request: Request) -> Response:
        if request.query_params.get("stream", "").lower() == "true":
            raise HttpError(400, "A response that is kept cannot be streamed again.", code="unsupported")
        return JsonResponse(_response(form_of(request), response_id))

    @router.delete("/v1/responses/{response_id}")
    async def delete(response_id: str, request: Request) -> Response:
        if not form_of(request).store.delete(response_id):
            raise _not_found(response_id)
        return JsonResponse({"id": response_id, "object": "response", "deleted": True})

    @router.get("/v1/responses/{response_id}/input_items")
    async def input_items(response_id: str, request: Request) -> Response:
        if (entry := form_of(request).store.get(response_id)) is None:
            raise _not_found(response_id)
        return JsonResponse(page_of(entry.items, response_id, request.query_params))

    @router.post("/v1/responses/{response_id}/cancel")
    async def cancel(response_id: str, request: Request) -> Response:
        form = form_of(request)
        if (response := form.in_progress(response_id)) is not None:
            state_of(request).pipeline.engine.cancel(response_id)
            return JsonResponse(response | {"status": "cancelled"})
        _response(form, response_id)
        raise HttpError(400, "Only a response that is in progress can be cancelled.", code="not_in_progress")

    return router


def _response(form: ResponsesFormat, response_id: str) -> dict[str, Any]:
    """A response that is kept or being made. Raises HttpError 404."""
    if (entry := form.store.get(response_id)) is not None:
        return entry.response
    if (response := form.in_progress(response_id)) is not None:
        return response
    raise _not_found(response_id)


def _not_found(response_id: str) -> HttpError:
    return HttpError(404, f"Response with id '{response_id}' not found.")
