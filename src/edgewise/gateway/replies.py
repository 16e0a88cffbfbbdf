"""Answers in one piece, and an upstream's errors, as the client's API has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from starlette.responses import Response

from edgewise.core.chat import ChatEvent
from edgewise.gateway.attempts import Begun
from edgewise.gateway.calls import Call
from edgewise.gateway.headers import passed_headers
from edgewise.gateway.parts import BrokenReplyError
from edgewise.gateway.shaping.request import shape
from edgewise.gateway.side import Side
from edgewise.gateway.translate import Translation
from edgewise.gateway.upstream_errors import broken, check_answer, in_words_of, is_error_object, read_error
from edgewise.serving.errors import HttpError, JsonResponse, error_response

_ASKED_AGAIN_S = 3600.0


async def read_whole(begun: Begun) -> bytes:
    """The whole body. Raises HttpError 502 where it breaks off."""
    try:
        return await begun.reply.read()
    except BrokenReplyError:
        begun.route.upstream.failed()
        raise broken(begun.route.upstream.name) from None


class WholeAnswers:
    """Answers that are read to their end before anything of them is sent."""

    def __init__(self, side: Side) -> None:
        self._side = side

    async def response(self, begun: Begun) -> Response:
        """The client's answer in one piece. Raises HttpError 502, and the error of an answer that failed."""
        headers = passed_headers(begun.reply.headers)
        translation = begun.plan.translation
        if translation is None:
            body = await read_whole(begun)
            check_answer(begun.route.upstream.name, begun.plan.call.api, body, headers)
            return begun.plan.passed(body, begun.reply.status, headers)
        kept = {name: value for name, value in headers.items() if name != "content-type"}
        return JsonResponse(translation.encoded(await self.events(begun)), headers=kept)

    async def events(self, begun: Begun, translation: Translation | None = None) -> list[ChatEvent]:
        """A translated answer as chat events, asked for again where it lacks a call that it must make.

        `translation`: in place of the plan's own, for an answer that should have passed as it is.
        """
        plan, upstream = begun.plan, begun.route.upstream
        translation = translation or plan.translation
        assert translation is not None
        events = translation.events_of(await read_whole(begun))
        if plan.enforcement is None or plan.unshaped is None:
            return events

        async def ask(body: dict[str, Any]) -> list[ChatEvent]:
            shaped = shape(body, translation.upstream_api, upstream.profile, model=begun.route.model)
            status, answer, headers = await self._side.ask(
                upstream, plan.path, orjson.dumps(shaped.body), timeout_s=_ASKED_AGAIN_S
            )
            if status != 200:
                raise read_error(upstream.name, status, answer, headers)
            return translation.events_of(answer)

        return await plan.enforcement.enforce(plan.unshaped, events, ask)


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An upstream's error: the answer for a client that has had no header yet, and what the last event of one that has says."""

    error: HttpError
    response: Response


async def error_answer(call: Call, begun: Begun) -> ErrorAnswer:
    """An upstream's error, byte for byte where it is an error object of the client's API already."""
    try:
        body = await begun.reply.read()
    except BrokenReplyError:
        body = b""
    reply = begun.reply
    error = read_error(begun.route.upstream.name, reply.status, body, reply.headers)
    told = in_words_of(call.api, error, body)
    if told is error and begun.plan.native and is_error_object(call.api, body):
        return ErrorAnswer(error, Response(body, reply.status, passed_headers(reply.headers)))
    return ErrorAnswer(told, error_response(told, {"type": "http", "path": call.api.value}))
