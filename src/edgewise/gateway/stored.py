"""Responses kept by the gateway itself, whichever upstream made them: most upstreams keep none, and a replica knows nothing of another's.

A request that follows an earlier response is sent with that response's whole context instead of its id, so any upstream can answer it. A
response belongs to the key that asked for it; for every other key there is no such response.
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
from edgewise.protocols.fields import Fields, invalid
from edgewise.protocols.responses import earlier_items
from edgewise.protocols.responses_input import is_reference, own_items
from edgewise.serving.errors import HttpError, JsonResponse
from edgewise.serving.paths import route_path
from edgewise.serving.response_lists import page_of
from edgewise.serving.response_store import OwnResponses, ResponseStore

_ENDS = ("response.completed", "response.incomplete")
_END = b"response."


class KeptResponses:
    """The store, with its routes below /v1/responses/ and what passed-through responses need."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store

    def of(self, key: KeyRecord) -> OwnResponses:
        return self._store.of(key.id)

    def expanded(self, call: Call) -> dict[str, Any]:
        """A request's body with what it refers to in its place: upstreams see one client, so they cannot tell whose a response is.

        Raises InvalidRequestError for what is not kept for this key.
        """
        own, fields = self.of(call.key), Fields.of(call.body, "")
        context = earlier_items(fields, own)
        given = own_items(fields)
        items = [_referred(item, i, own) for i, item in enumerate(given)]
        if not context and all(new is old for new, old in zip(items, given, strict=True)):
            return call.body
        rest = {name: value for name, value in call.body.items() if name != "previous_response_id"}
        return rest | {"input": [*context, *items]}

    def keep(self, call: Call, response: Mapping[str, Any]) -> None:
        """Keep an ended response of a call, if its client wants that."""
        if call.body.get("store") is False or not isinstance(response.get("id"), str):
            return
        if isinstance(response.get("output"), list):
            items = own_items(Fields.of(self.expanded(call), ""))
            self.of(call.key).put(dict(response), [item for item in items if isinstance(item, dict)])

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
        response_id, _, rest = route_path(request.scope).split("/responses/", 1)[1].partition("/")
        own = self.of(key)
        entry = own.get(response_id)
        if entry is None:
            raise HttpError(404, f"Response with id '{response_id}' not found.")
        match request.method, rest:
            case "GET", "" if request.query_params.get("stream", "").lower() == "true":
                raise HttpError(400, "A response that is kept cannot be streamed again.", code="unsupported")
            case "GET", "":
                return JsonResponse(entry.response)
            case "DELETE", "":
                own.delete(response_id)
                return JsonResponse({"id": response_id, "object": "response", "deleted": True})
            case "GET", "input_items":
                return JsonResponse(page_of(entry.items, response_id, request.query_params))
            case "POST", "cancel":
                raise HttpError(
                    400, "Only a response that is in progress can be cancelled.", code="not_in_progress"
                )
            case _:
                raise HttpError(404, "There is no such path here.", code="not_found")


def _referred(item: Any, place: int, own: OwnResponses) -> Any:
    """The item that a reference means. Raises InvalidRequestError where there is none."""
    if not isinstance(item, dict) or not is_reference(item):
        return item
    if (found := own.item(str(item.get("id")))) is None:
        raise invalid(f"input[{place}].id", "names an item that is not stored here", item.get("id"))
    return found


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
            try:
                event = orjson.loads(line[5:])
            except orjson.JSONDecodeError:
                return None
            response = event.get("response") if isinstance(event, dict) else None
            return response if isinstance(response, dict) and event.get("type") in _ENDS else None
    return None
