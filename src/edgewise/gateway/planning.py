"""What a request becomes on its way to one upstream: the same bytes, a shaped body, or a request of another API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from edgewise.gateway.calls import Call
from edgewise.gateway.outlets import BeforeAnswer, Outlet, PassThrough
from edgewise.gateway.parts import Route
from edgewise.serving.errors import HttpError


@dataclass(frozen=True, slots=True)
class Plan:
    """`translation` None: the reply's bytes are the client's."""

    path: str
    body: bytes
    dropped: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    translation: Any = None

    @property
    def native(self) -> bool:
        """Whether the upstream was asked in the client's own API."""
        return self.translation is None

    def outlet(self, call: Call, before: BeforeAnswer) -> Outlet:
        return PassThrough(call.api, before)


class Planner:
    def plan(self, call: Call, route: Route) -> Plan:
        profile = route.upstream.profile
        if call.api in profile.apis:
            if route.model == call.model:
                return Plan(call.api.value, call.raw)
            return Plan(call.api.value, orjson.dumps({**call.body, "model": route.model}))
        raise HttpError(404, "not offered")
