"""One generating HTTP request from admission to its last byte: its place inside, its watch on the client, its source.

The client's leaving is noticed in every phase: while the body is prepared, queued, in prefill, between tokens, streamed or
not. The source is then cancelled, so the engine lets go of the request within a step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from fastapi import Request

from edgewise.core.chat import Failed
from edgewise.core.errors import OverloadedError
from edgewise.pipeline import Pipeline, Prepared, Stream
from edgewise.protocols.reply import Reply
from edgewise.server.admission import Ticket
from edgewise.server.sources import MergedStreams
from edgewise.serving.errors import ClientGoneError
from edgewise.serving.event_stream import EventSource


class Exchange:
    """Event loop only. `close` must be called once, whatever happened; it cancels what still runs."""

    def __init__(self, request: Request, ticket: Ticket) -> None:
        self._request = request
        self._ticket = ticket
        self._arrival_s = time.monotonic()
        self._watch: asyncio.Task[None] | None = None
        self._source: EventSource | None = None
        self.streams: list[Stream] = []
        self.client_gone = False

    def watch_client(self) -> None:
        """From now on the client's leaving cancels the request. Call after the body was read."""
        self._watch = asyncio.create_task(self._until_disconnect())

    async def _until_disconnect(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self.client_gone = True
        if self._source is not None:
            self._source.cancel()

    def start(self, pipeline: Pipeline, prepared: Sequence[Prepared], num_choices: int) -> EventSource:
        """Submit every prompt, as of the request's arrival. Raises what `Pipeline.start` raises."""
        self.raise_if_gone()
        for one in prepared:  # where one fails, `close` cancels the others
            arrived = replace(one, request=replace(one.request, arrival_s=self._arrival_s))
            self.streams.append(pipeline.start(arrived))
        single = len(self.streams) == 1
        self._source = self.streams[0] if single else MergedStreams(self.streams, num_choices)
        return self._source

    def raise_if_gone(self) -> None:
        if self.client_gone:
            raise ClientGoneError("the client closed its connection")

    async def gather(self, num_choices: int) -> list[Reply]:
        """One Reply per prompt, when all are complete. Raises the error that ended one, ClientGoneError, or OverloadedError when
        the server stops before."""
        try:
            return await self._gather(num_choices)
        except asyncio.CancelledError:  # no header has left yet, so the client can be told
            raise OverloadedError("The server is shutting down.") from None

    async def _gather(self, num_choices: int) -> list[Reply]:
        assert self._source is not None
        replies = [Reply.empty(num_choices) for _ in self.streams]
        whole = Reply([choice for reply in replies for choice in reply.choices])
        while events := await self._source.ready_events():
            whole.add(events)
            if isinstance(events[-1], Failed):
                raise events[-1].error
        self.raise_if_gone()
        for reply, stream in zip(replies, self.streams, strict=True):
            reply.usage = stream.usage
            reply.timings = stream.timings
        return replies

    @property
    def num_bare_calls(self) -> int:
        return sum(stream.num_bare_calls for stream in self.streams)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for stream in self.streams:
            stream.cancel()
        self._ticket.leave()
