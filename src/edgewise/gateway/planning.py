"""What a request becomes on its way to one upstream: the same bytes, a shaped body, or a request of another API."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from starlette.responses import Response

from edgewise.gateway.calls import Call
from edgewise.gateway.outlets import BeforeAnswer, Outlet, PassThrough
from edgewise.gateway.parts import Route
from edgewise.gateway.profile import Api
from edgewise.gateway.shaping.request import shape
from edgewise.gateway.stored import KeepingPassThrough, KeptResponses
from edgewise.serving.errors import HttpError


@dataclass(frozen=True, slots=True)
class Plan:
    """A request as it is sent, and what its answer is turned into. `dropped` and `applied`: what shaping did, by name."""

    call: Call
    path: str
    body: bytes
    dropped: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    kept: KeptResponses | None = None

    @property
    def native(self) -> bool:
        """Whether the upstream is asked in the client's own API."""
        return True

    def outlet(self, before: BeforeAnswer) -> Outlet:
        if self.kept is not None:
            return KeepingPassThrough(self.call, before, self.kept)
        return PassThrough(self.call.api, before)

    def answer(self, body: bytes, status: int, headers: dict[str, str]) -> Response:
        """The client's answer in one piece, from the upstream's."""
        if self.kept is not None:
            self.kept.keep_body(self.call, body)
        return Response(body, status, headers)


class Planner:
    """Event loop only."""

    def __init__(self, kept: KeptResponses) -> None:
        self._kept = kept

    def plan(self, call: Call, route: Route) -> Plan:
        """Raises InvalidRequestError for what translation cannot carry, HttpError 404 for an API the upstream cannot stand in for."""
        if call.api in route.upstream.profile.apis:
            return self._native(call, route)
        raise HttpError(404, f"The model's server does not offer {call.api.value}.", code="not_found")

    def _native(self, call: Call, route: Route) -> Plan:
        kept = self._kept if call.api is Api.RESPONSES else None
        body = call.body if kept is None else kept.expanded(call.body)
        shaped = shape(body, call.api, route.upstream.profile, model=route.model)
        sent = call.raw if shaped.body is call.body else orjson.dumps(shaped.body)
        return Plan(call, call.api.value, sent, shaped.dropped, shaped.applied, kept=kept)
