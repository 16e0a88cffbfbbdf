"""What a request becomes on its way to one upstream: the same bytes, a shaped body, or a request of another API."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import orjson
from starlette.responses import Response

from edgewise.gateway.calls import Call
from edgewise.gateway.counting import read_count
from edgewise.gateway.dialects import MessagesDialect, client_dialect
from edgewise.gateway.outlets import BeforeAnswer, PassThrough
from edgewise.gateway.parts import Route
from edgewise.gateway.profile import Api
from edgewise.gateway.shaping.enforce import Enforcement, enforcement
from edgewise.gateway.shaping.reply import loses_schema, touches_reply
from edgewise.gateway.shaping.request import shape
from edgewise.gateway.stored import KeepingPassThrough, KeptResponses
from edgewise.gateway.translate import Translation, new_head, spoken_with, translation_of
from edgewise.serving.errors import HttpError


@dataclass(frozen=True, slots=True)
class Plan:
    """A request as it is sent, and what its answer is turned into. `dropped` and `applied`: what shaping did, by name.

    `translation` None: the reply's bytes are the client's. `enforcement`: the answer is gathered and checked before anything of it is sent;
    `unshaped` is the body it would be asked again with.
    """

    call: Call
    path: str
    body: bytes
    dropped: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    translation: Translation | None = None
    enforcement: Enforcement | None = None
    unshaped: dict[str, Any] | None = None
    kept: KeptResponses | None = None

    @property
    def native(self) -> bool:
        """Whether the upstream is asked in the client's own API."""
        return self.translation is None or self.translation.upstream_api is self.call.api

    def pass_through(self, before: BeforeAnswer) -> PassThrough:
        if self.kept is not None:
            return KeepingPassThrough(self.call, before, self.kept)
        return PassThrough(self.call.api, before)

    def passed(self, body: bytes, status: int, headers: dict[str, str]) -> Response:
        """An answer in one piece that is not translated."""
        if self.kept is not None:
            self.kept.keep_body(self.call, body)
        return Response(body, status, headers)


class Planner:
    """Event loop only."""

    def __init__(self, kept: KeptResponses) -> None:
        self._kept = kept

    def plan(self, call: Call, route: Route) -> Plan:
        """Raises InvalidRequestError for what translation cannot carry, HttpError 404 for an API the upstream cannot stand in for."""
        profile = route.upstream.profile
        changed = touches_reply(profile, call.api, call.body) or loses_schema(profile, call.api, call.body)
        if call.api in profile.apis and not changed:
            return self._native(call, route)
        return self._translated(call, route)

    def _native(self, call: Call, route: Route) -> Plan:
        kept = self._kept if call.api is Api.RESPONSES else None
        body = call.body if kept is None else kept.expanded(call)
        shaped = shape(body, call.api, route.upstream.profile, model=route.model)
        sent = call.raw if shaped.body is call.body else orjson.dumps(shaped.body)
        return Plan(call, call.api.value, sent, shaped.dropped, shaped.applied, kept=kept)

    def stand_in(self, call: Call, route: Route) -> Translation:
        """What makes events of an answer in one piece, where a stream was to be passed as it is. Raises like `plan`."""
        dialect = client_dialect(call.api, self._kept.of(call.key))
        translation = (
            None if dialect is None else translation_of(call, dialect, route.upstream.profile, route.model)
        )
        if translation is None:
            raise not_offered(call.api)
        return translation

    def _translated(self, call: Call, route: Route) -> Plan:
        profile = route.upstream.profile
        translation = self.stand_in(call, route)
        body = translation.request_body()
        checked = enforcement(body, translation.upstream_api, profile)
        if checked is not None and body.get("stream"):
            translation = _in_one_piece(translation)
            body = translation.request_body()
        shaped = shape(body, translation.upstream_api, profile, model=route.model)
        wanted = translation.wanted
        dropped = (*wanted.chat.ignored_fields, *wanted.unmet, *shaped.dropped)
        return Plan(
            call,
            translation.upstream_api.value,
            orjson.dumps(shaped.body),
            tuple(dict.fromkeys(dropped)),
            shaped.applied,
            translation,
            checked,
            body,
        )

    def counted(self, call: Call, route: Route) -> tuple[Translation, dict[str, Any]]:
        """A count_tokens request as a shaped request for one token. Raises HttpError 404 where the upstream speaks no API of ours."""
        profile = route.upstream.profile
        api = spoken_with(profile, Api.MESSAGES)
        if api is None:
            raise not_offered(call.api)
        dialect = MessagesDialect()
        head = new_head(call, dialect, route.model)
        translation = Translation(dialect, Api.MESSAGES, api, read_count(call.body), head, profile)
        return translation, shape(translation.request_body(), api, profile, model=route.model).body


def _in_one_piece(translation: Translation) -> Translation:
    """The same request, answered whole: its answer has to be seen before it is sent."""
    chat = replace(translation.wanted.chat, stream=False, include_usage=False)
    return replace(translation, wanted=replace(translation.wanted, chat=chat))


def not_offered(api: Api) -> HttpError:
    return HttpError(404, f"The model's server does not offer {api.value}.", code="not_found")
