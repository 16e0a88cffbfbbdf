"""Where the engine thread and a consumer meet: one request (`Stream`, plain or asyncio), or many (`StreamGroup`).

The engine thread only puts events into a queue and wakes somebody. It holds no reference to a Stream, so a stream that its
consumer drops is collected at once, which cancels its request.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Self

from edgewise.core.chat import ChatEvent
from edgewise.core.errors import EdgewiseError
from edgewise.core.requests import RequestTimings, TokenEvent, TokenLogprob, Usage
from edgewise.pipeline.answer import Answer
from edgewise.pipeline.prepare import Prepared
from edgewise.text import Tokenizer

if TYPE_CHECKING:
    from edgewise.engine import Engine

SETTLE_TIMEOUT_S = 0.8  # how long an interrupted caller waits for the engine to let go of its requests


class _Inbox:
    """A request's TokenSink: a queue, and the asyncio consumer to wake, if that is who listens."""

    __slots__ = ("events", "post", "waiter")

    def __init__(self) -> None:
        self.events: SimpleQueue[TokenEvent] = SimpleQueue()
        self.post: Callable[[_Inbox], None] | None = None
        self.waiter: asyncio.Future[None] | None = None

    def __call__(self, event: TokenEvent) -> None:
        self.events.put(event)
        if (post := self.post) is not None:
            post(self)

    def wake(self) -> None:
        """On the loop's thread."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class LoopWaker:
    """Wakes the consumers on one event loop: one callback into the loop for all news since the last, however many requests."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._ready: deque[_Inbox] = deque()
        self._scheduled = False

    def post(self, inbox: _Inbox) -> None:
        """From the engine thread. The order matters: what is appended before the flag is read is seen by `_drain`."""
        self._ready.append(inbox)
        if self._scheduled:
            return
        self._scheduled = True
        if (loop := self._loop()) is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # closed in between: nobody listens any more
                self._ready.clear()

    def _drain(self) -> None:
        self._scheduled = False
        while self._ready:
            self._ready.popleft().wake()


class Wakers:
    """The LoopWaker of each event loop that has consumers."""

    def __init__(self) -> None:
        self._wakers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWaker] = (
            weakref.WeakKeyDictionary()
        )

    def of(self, loop: asyncio.AbstractEventLoop) -> LoopWaker:
        if (waker := self._wakers.get(loop)) is None:
            waker = self._wakers[loop] = LoopWaker(loop)
        return waker


def _answer(prepared: Prepared, engine: Engine, tokenizer: Tokenizer) -> Answer:
    request_id = prepared.request.request_id
    return Answer(
        prepared.request,
        tokenizer,
        lambda choice: engine.finish_choice(request_id, choice),
        prepared.style,
    )


class Stream:
    """The events of one request, as an iterator or an async iterator; use one of the two.

    Dropping it, closing it, or cancelling the task that awaits it cancels the request. `Failed` is an event, not an exception.
    """

    def __init__(self, prepared: Prepared, engine: Engine, tokenizer: Tokenizer, wakers: Wakers) -> None:
        """Submits the request. Raises what `Engine.submit` raises."""
        self.prepared = prepared
        self._engine = engine
        self._wakers = wakers
        self._answer = _answer(prepared, engine, tokenizer)
        self._pending: deque[ChatEvent] = deque()
        self._inbox = _Inbox()
        self._submitted = True  # before it is, so that an interrupt in between cancels too
        try:
            engine.submit(prepared.request, self._inbox)
        except EdgewiseError:
            self._submitted = False  # refused: the id may be another request's
            raise

    @property
    def request_id(self) -> str:
        return self.prepared.request.request_id

    @property
    def usage(self) -> Usage:
        return self._answer.usage

    @property
    def num_bare_calls(self) -> int:
        """Calls so far that the model wrote as plain JSON."""
        return self._answer.num_bare_calls

    @property
    def timings(self) -> RequestTimings | None:
        """Known once a choice has finished."""
        return self._answer.timings

    @property
    def prompt_logprobs(self) -> tuple[TokenLogprob | None, ...] | None:
        """Known from the first event on."""
        return self._answer.prompt_logprobs

    @property
    def finished(self) -> bool:
        """Whether all events have been handed out."""
        return self._answer.finished and not self._pending

    def cancel(self) -> None:
        """Ask the engine to stop; the stream then ends with Finish("cancelled"). Any thread; safe to repeat."""
        if not self._answer.engine_finished:
            self._engine.cancel(self.request_id)

    close = cancel

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        if getattr(self, "_submitted", False) and not self._answer.finished:
            self.cancel()

    def __iter__(self) -> Iterator[ChatEvent]:
        return self

    def __next__(self) -> ChatEvent:
        while not self._pending:
            if self._answer.finished:
                raise StopIteration
            self._pending.extend(self._answer.feed(self._inbox.events.get()))
        return self._pending.popleft()

    def __aiter__(self) -> AsyncIterator[ChatEvent]:
        return self

    async def __anext__(self) -> ChatEvent:
        if not self._pending:
            self._pending.extend(await self.ready_events())
        if not self._pending:
            raise StopAsyncIteration
        return self._pending.popleft()

    async def ready_events(self) -> list[ChatEvent]:
        """All events that are there, at least one; an empty list once the stream has ended."""
        events = list(self._pending)
        self._pending.clear()
        self._take_ready(events)
        while not events and not self._answer.finished:
            await self._news()
            self._take_ready(events)
        return events

    def _take_ready(self, events: list[ChatEvent]) -> None:
        while not self._answer.finished:
            try:
                event = self._inbox.events.get_nowait()
            except Empty:
                return
            events += self._answer.feed(event)

    async def _news(self) -> None:
        """Return when the inbox may hold something. The request is cancelled with the task that waits."""
        loop = asyncio.get_running_loop()
        inbox = self._inbox
        inbox.waiter = loop.create_future()
        if inbox.post is None:
            inbox.post = self._wakers.of(loop).post
        if not inbox.events.empty():
            return
        try:
            await inbox.waiter
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            inbox.waiter = None


class StreamGroup:
    """Many requests submitted together and consumed by one thread as their events come: (index, event) pairs.

    All are consumed at once so that a stop string ends its request at once, whatever comes before it in the list.
    """

    def __init__(self, prepared: Sequence[Prepared], engine: Engine, tokenizer: Tokenizer) -> None:
        self._engine = engine
        self._events: SimpleQueue[tuple[int, TokenEvent]] = SimpleQueue()
        self._submitted = 0
        self.answers = [_answer(one, engine, tokenizer) for one in prepared]

    def __iter__(self) -> Iterator[tuple[int, ChatEvent]]:
        """Submit everything and yield until all are finished. Any way out before that cancels the rest and waits for it."""
        try:
            self._submit()
            open_answers = len(self.answers)
            while open_answers:
                index, event = self._events.get()
                was_finished = self.answers[index].finished
                for chat_event in self.answers[index].feed(event):
                    yield index, chat_event
                open_answers -= self.answers[index].finished and not was_finished
        except BaseException:
            self._settle()
            raise

    def _submit(self) -> None:
        for index, answer in enumerate(self.answers):
            self._submitted = index + 1
            try:
                self._engine.submit(answer.request, self._sink(index))
            except EdgewiseError:
                self._submitted = index  # refused: the id may be another request's
                raise

    def _sink(self, index: int) -> Callable[[TokenEvent], None]:
        put = self._events.put
        return lambda event: put((index, event))

    def _settle(self) -> None:
        """Cancel what still runs and wait until the engine has let go of it."""
        waiting = [a for a in self.answers[: self._submitted] if not a.engine_finished]
        for answer in waiting:
            self._engine.cancel(answer.request.request_id)
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while any(not answer.engine_finished for answer in waiting):
            try:
                index, event = self._events.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except Empty:
                return
            self.answers[index].feed(event)
