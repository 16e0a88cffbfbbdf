"""The way of one request through the gateway, from a read body to the last byte of its answer.

Streamed: the upstream's status is waited for; an error among them reaches the client as that HTTP error. After `commit_after_s` of silence
the client gets its 200 and signs of life instead, and whatever fails from then on is an event of its API. In one piece: the
answer is read whole before anything is sent, so what breaks in the middle is an HTTP error too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Scope

from edgewise.core.errors import EdgewiseError
from edgewise.gateway.attempts import Attempts, Begun
from edgewise.gateway.calls import Call
from edgewise.gateway.counting import Counter
from edgewise.gateway.downstream import Downstream, Heartbeat, RawHeaders, raw_headers
from edgewise.gateway.headers import passed_headers, plain
from edgewise.gateway.metrics import NONE, GatewayMetrics
from edgewise.gateway.outlets import BeforeAnswer, Outlet
from edgewise.gateway.parts import BrokenReplyError, ForwardOptions, Route
from edgewise.gateway.profile import Api
from edgewise.gateway.replies import WholeAnswers, error_answer
from edgewise.gateway.translate import Translated
from edgewise.gateway.upstream_errors import broken, is_answer, malformed
from edgewise.protocols import sse
from edgewise.serving.errors import HttpError, JsonResponse, error_response

logger = logging.getLogger("edgewise.gateway")

_DROPPED = "x-edgewise-dropped-fields"
_STREAM_HEADERS = {"content-type": sse.CONTENT_TYPE, "cache-control": "no-cache", "x-accel-buffering": "no"}


class _Stream:
    """A streamed request under the heartbeat's eye."""

    def __init__(self, call: Call, down: Downstream, before: BeforeAnswer, forwarder: Forwarder) -> None:
        self._call = call
        self._down = down
        self._forwarder = forwarder
        self._start_s = down.last_write_s
        self.outlet: Outlet | BeforeAnswer = before

    def check(self, now_s: float) -> None:
        options = self._forwarder.options
        silent_s = now_s - self._down.last_write_s
        limit_s = options.keep_alive_s if self._down.started else options.commit_after_s
        if silent_s >= limit_s:
            self._down.beat(self._beat)

    async def _beat(self) -> None:
        down = self._down
        if not down.started:
            await down.start(200, raw_headers({**_STREAM_HEADERS, "request-id": self._call.id}))
        if data := self.outlet.keepalive(asyncio.get_running_loop().time() - self._start_s):
            self._forwarder.metrics.keepalives.labels(self._call.api.value).inc()
            await down.beat_now(data)


class Forwarder:
    """Event loop only."""

    def __init__(
        self,
        attempts: Attempts,
        whole: WholeAnswers,
        counter: Counter,
        options: ForwardOptions,
        metrics: GatewayMetrics,
    ) -> None:
        self.options = options
        self.metrics = metrics
        self._attempts = attempts
        self._whole = whole
        self._counter = counter
        step_s = min(options.commit_after_s, options.keep_alive_s) / 10
        self.heartbeat = Heartbeat(min(max(step_s, 0.005), 1.0))

    async def answer(self, call: Call, down: Downstream, scope: Scope) -> None:
        """Answer a request, whatever happens to it. Cancelled when its client leaves."""
        start_s = asyncio.get_running_loop().time()
        before = BeforeAnswer(call.api, call.model, call.message_id)
        stream = _Stream(call, down, before, self) if call.stream else None
        begun: Begun | None = None
        upstream = NONE
        status = 0
        if stream is not None:
            self.heartbeat.add(stream)
        try:
            if call.api is Api.COUNT_TOKENS and (route := self._attempts.counts_for(call)) is not None:
                upstream = route.upstream.name
                status = await self._count_tokens(call, route, down)
                return
            begun = await self._attempts.begin(call)
            upstream = begun.route.upstream.name
            status = await self._pass_on(call, begun, down, stream, before)
        except asyncio.CancelledError:
            if down.gone:
                status = 499
                raise
            stopping = HttpError(
                503, "The server is shutting down.", kind="server_error", code="shutting_down"
            )
            status = await self._fail(
                stopping, call, down, scope, before if stream is None else stream.outlet
            )
        except Exception as error:
            status = await self._fail(error, call, down, scope, before if stream is None else stream.outlet)
        finally:
            if stream is not None:
                self.heartbeat.remove(stream)
            if begun is not None:
                await begun.close()
                if begun.plan.translation is not None:
                    self.metrics.note_repairs(upstream, begun.plan.translation.repair_counts())
            self._count(call, upstream, down, status, start_s)

    def _count(self, call: Call, upstream: str, down: Downstream, status: int, start_s: float) -> None:
        api = call.api.value
        self.metrics.requests.labels(api, upstream, call.key.id, str(status)).inc()
        if down.gone:
            self.metrics.clients_gone.labels(api).inc()
        if down.first_write_s is not None:
            self.metrics.first_byte_s.labels(api, upstream).observe(down.first_write_s - start_s)
        wall_s = asyncio.get_running_loop().time() - start_s
        self.metrics.request_s.labels(api, upstream).observe(wall_s)
        logger.info("%s %s %s -> %s: %d in %.3f s", call.id, call.key.id, api, upstream, status, wall_s)

    async def _pass_on(
        self, call: Call, begun: Begun, down: Downstream, stream: _Stream | None, before: BeforeAnswer
    ) -> int:
        upstream = begun.route.upstream.name
        self.metrics.note_plan(upstream, begun.plan.applied, begun.plan.dropped)
        if begun.reply.status >= 400:
            self.metrics.upstream_errors.labels(upstream, str(begun.reply.status)).inc()
            return await self._pass_error_on(call, begun, down, before)
        if not is_answer(begun.reply):
            self.metrics.upstream_errors.labels(upstream, "malformed").inc()
            raise malformed(upstream)
        if stream is None:
            response = await self._whole.response(begun)
            await respond(down, response, self._headers(call, begun))
            return response.status_code
        translation = begun.plan.translation
        stream.outlet = outlet = (
            begun.plan.pass_through(before) if translation is None else translation.outlet(before)
        )
        in_pieces = _is_event_stream(begun.reply.headers) and begun.plan.enforcement is None
        if not in_pieces:
            return await self._pass_whole_on(call, begun, down, outlet, before)
        await self._start_stream(call, begun, down)
        await self._pass_events_on(begun, down, outlet)
        return 200

    async def _pass_whole_on(
        self, call: Call, begun: Begun, down: Downstream, outlet: Outlet, before: BeforeAnswer
    ) -> int:
        """A streamed request answered in one piece: by an upstream that does not stream, or because the answer had to be seen first."""
        translation = begun.plan.translation or self._attempts.planner.stand_in(call, begun.route)
        if not isinstance(outlet, Translated):
            outlet = translation.outlet(before)
        events = await self._whole.events(begun, translation)
        await self._start_stream(call, begun, down)
        await down.end(outlet.opening() + outlet.encode(events) + outlet.closing_whole())
        return 200

    async def _start_stream(self, call: Call, begun: Begun, down: Downstream) -> None:
        if not down.started:
            headers = {**passed_headers(begun.reply.headers), **_STREAM_HEADERS}
            await down.start(200, raw_headers({**headers, **self._headers(call, begun)}))

    async def _pass_events_on(self, begun: Begun, down: Downstream, outlet: Outlet) -> None:
        if opening := outlet.opening():
            await down.write(opening)
        reply = begun.reply
        try:
            async for piece in reply.chunks():
                if data := outlet.feed(piece):
                    await down.write(data)
                if outlet.failed:
                    break
            if not _is_framed(reply.headers) and not outlet.complete:
                raise BrokenReplyError("the connection was closed before the stream's end mark")
            last = b"" if outlet.failed else outlet.closing()
        except BrokenReplyError as error:
            name = begun.route.upstream.name
            logger.warning("%s: %s", name, error)
            begun.route.upstream.failed()
            self.metrics.upstream_errors.labels(name, "broken").inc()
            last = outlet.closing() if outlet.complete else outlet.failure(broken(name))
        await down.end(last)

    async def _pass_error_on(self, call: Call, begun: Begun, down: Downstream, before: BeforeAnswer) -> int:
        """An upstream's error as the client's API has them: as an HTTP error while that is possible."""
        answer = await error_answer(call, begun)
        if down.started:
            await down.end(before.failure(answer.error))
        else:
            await respond(down, answer.response, self._headers(call, begun))
        return begun.reply.status

    async def _fail(
        self, error: Exception, call: Call, down: Downstream, scope: Scope, outlet: Outlet | BeforeAnswer
    ) -> int:
        if not isinstance(error, EdgewiseError):
            logger.error("a request failed: %s", error, exc_info=error)
        response = error_response(error, scope)
        if not down.started:
            await respond(down, response, {"request-id": call.id})
        elif not outlet.failed:
            await down.end(outlet.failure(error))
        return response.status_code

    async def _count_tokens(self, call: Call, route: Route, down: Downstream) -> int:
        translation, body = self._attempts.planner.counted(call, route)
        response = JsonResponse({"input_tokens": await self._counter.count(route, translation, body)})
        await respond(down, response, _who_answers(call, route))
        return response.status_code

    def _headers(self, call: Call, begun: Begun) -> dict[str, str]:
        """Who answers, and what was dropped on the way: here, and by a gateway that the upstream may be."""
        headers = _who_answers(call, begun.route)
        further = begun.reply.headers.get(_DROPPED, "")
        if dropped := [*begun.plan.dropped, *([further] if further else [])]:
            headers[_DROPPED] = plain(", ".join(dropped))
        return headers


def _who_answers(call: Call, route: Route) -> dict[str, str]:
    return {
        "x-edgewise-upstream": plain(route.upstream.name),
        "x-edgewise-model": plain(route.model),
        "request-id": call.id,
    }


def _is_event_stream(headers: Mapping[str, str]) -> bool:
    """Whether a streamed request is answered by a stream. Upstreams that say nothing of the kind are taken at their request's word."""
    return not headers.get("content-type", "").startswith("application/json")


def _is_framed(headers: Mapping[str, str]) -> bool:
    """Whether HTTP itself says where the body ends; else only the stream's own end mark does."""
    return "transfer-encoding" in headers or "content-length" in headers


async def respond(down: Downstream, response: Response, headers: dict[str, str]) -> None:
    """Send an answer in one piece. `headers` stand in for those of these names that it has."""
    own = raw_headers(headers)
    replaced = {name for name, _ in own}
    raw: RawHeaders = [*((name, value) for name, value in response.raw_headers if name not in replaced), *own]
    await down.start(response.status_code, raw)
    await down.end(bytes(response.body))
