"""Responses kept by the gateway itself, whichever upstream made them: most upstreams keep none, and a replica knows nothing of another's.

A request that follows an earlier response is sent with that response's whole context instead of its id, so any upstream can answer it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import Request
from starlette.responses import Response

from edgewise.core.keys import KeyRecord
from edgewise.gateway.calls import Call
from edgewise.gateway.outlets import BeforeAnswer, PassThrough
from edgewise.gateway.profile import Api
from edgewise.protocols.fields import Fields
from edgewise.protocols.responses_input import own_items
from edgewise.serving.errors import HttpError, JsonResponse
from edgewise.serving.response_lists import page_of
from edgewise.serving.response_store import ResponseStore

_ENDS = ("response.completed", "response.incomplete")
_END = b"response."


class KeptResponses:
    """The store, with its routes below /v1/responses/ and what passed-through responses need."""

    def __init__(self, store: ResponseStore) -> None:
        self.store = store

    def expanded(self, body: dict[str, Any]) -> dict[str, Any]:
        """A request with the context of the response it follows, if that is kept here; else the same request."""
        previous = body.get("previous_response_id")
        context = self.store.context_of(previous) if isinstance(previous, str) else None
        if context is None:
            return body
        rest = {name: value for name, value in body.items() if name != "previous_response_id"}
        return rest | {"input": [*context, *own_items(Fields.of(body, ""))]}

    def keep(self, call: Call, response: Mapping[str, Any]) -> None:
        """Keep an ended response of a call, if its client wants that."""
        if call.body.get("store") is False or not isinstance(response.get("id"), str):
            return
        if isinstance(response.get("output"), list):
            items = own_items(Fields.of(self.expanded(call.body), ""))
            self.store.put(dict(response), [item for item in items if isinstance(item, dict)])

    def keep_body(self, call: Call, body: bytes) -> None:
        """Likewise, from an answer in one piece."""
        try:
            response = orjson.loads(body)
        except orjson.JSONDecodeError:
            return
        if isinstance(response, dict) and response.get("status") in ("completed", "incomplete"):
            self.keep(call, response)

    async def answer(self, request: Request, key: KeyRecord) -> Response:
        """/v1/responses/ID, /v1/responses/ID/input_items, /v1/responses/ID/cancel."""
        response_id, _, rest = request.url.path.split("/responses/", 1)[1].partition("/")
        entry = self.store.get(response_id)
        if entry is None:
            raise HttpError(404, f"Response with id '{response_id}' not found.")
        match request.method, rest:
            case "GET", "" if request.query_params.get("stream", "").lower() == "true":
                raise HttpError(400, "A response that is kept cannot be streamed again.", code="unsupported")
            case "GET", "":
                return JsonResponse(entry.response)
            case "DELETE", "":
                self.store.delete(response_id)
                return JsonResponse({"id": response_id, "object": "response", "deleted": True})
            case "GET", "input_items":
                return JsonResponse(page_of(entry.items, response_id, request.query_params))
            case "POST", "cancel":
                raise HttpError(
                    400, "Only a response that is in progress can be cancelled.", code="not_in_progress"
                )
            case _:
                raise HttpError(404, "There is no such path here.", code="not_found")


class KeepingPassThrough(PassThrough):
    """A response's stream as it is, its last event read on its way."""

    def __init__(self, call: Call, before: BeforeAnswer, kept: KeptResponses) -> None:
        super().__init__(Api.RESPONSES, before)
        self._call = call
        self._kept = kept

    def feed(self, piece: bytes) -> bytes:
        data = super().feed(piece)
        if _END in data and (response := _ended_response(data)) is not None:
            self._kept.keep(self._call, response)
        return data


def _ended_response(events: bytes) -> dict[str, Any] | None:
    """The response in the last of whole events, if that ends it."""
    for line in reversed(events.splitlines()):
        if line.startswith(b"data:"):
            if not any(kind.encode() in line for kind in _ENDS):
                return None
            event = orjson.loads(line[5:])
            return event["response"] if event.get("type") in _ENDS else None
    return None
