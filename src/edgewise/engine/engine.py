"""Engine: the thread that owns all sequences, and the doors to it. Its border is messages only.

Threads. `submit`, `cancel`, `reset_prefix_cache`, `drain`, `close`, `stats` may be called from any thread; they put a message into
the inbox or read a snapshot; so may `cached_prefix_len`, which looks into the prefix tree. The engine thread alone touches
`EngineCore` otherwise; sinks and listeners are called on it, after the bookkeeping of a step. `_lock` guards only who is accepted
and whether the engine still takes requests.

Starting an engine sets the interpreter's switch interval for the whole process (`EngineConfig.switch_interval_s`).

Cancelling while a prompt is being computed cuts the step short. No such cancel is lost: it puts its message first and reads
`_in_flight` second, while the engine thread publishes `_in_flight` first and looks into the inbox second.
"""

from __future__ import annotations

import logging
import queue
import secrets
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, replace

from edgewise.core.errors import EngineDeadError, InvalidRequestError, OverloadedError, RequestCancelledError
from edgewise.core.requests import EngineStats, GenerationRequest, TokenSink
from edgewise.decoder.batch import DecoderRunner
from edgewise.engine.admission import check_request
from edgewise.engine.config import EngineConfig
from edgewise.engine.core import EngineCore
from edgewise.engine.records import EngineListener
from edgewise.engine.sequence import ActiveRequest

logger = logging.getLogger("edgewise.engine")

CLOSE_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class _Submit:
    owner: ActiveRequest


@dataclass(frozen=True, slots=True)
class _Cancel:
    request_id: str


@dataclass(frozen=True, slots=True)
class _FinishChoice:
    request_id: str
    choice: int


@dataclass(frozen=True, slots=True)
class _AddListener:
    listener: EngineListener


@dataclass(frozen=True, slots=True)
class _ResetCache:
    done: Future[bool]


@dataclass(frozen=True, slots=True)
class _Close:
    pass


_Message = _Submit | _Cancel | _FinishChoice | _AddListener | _ResetCache | _Close


class Engine:
    """Continuous batching over one decoder, which it owns from here on."""

    def __init__(self, decoder: DecoderRunner, config: EngineConfig) -> None:
        """Start the engine thread. Raises ConfigError where the decoder cannot hold what the config asks for."""
        self.config = config
        self._decoder = decoder
        self._core = EngineCore(
            decoder,
            config,
            on_scheduled=self._note_scheduled,
            on_release=self._note_release,
            on_end=self._note_end,
        )
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._seen: deque[_Message] = deque()  # taken out of the inbox, not yet handled
        self._lock = threading.Lock()
        self._all_ended = threading.Condition(self._lock)
        self._used_ids: set[str] = set()
        self._num_unfinished = 0  # accepted, not ended
        self._num_waiting = 0  # accepted, not yet scheduled
        self._num_accepted = 0  # ever
        self._refusal: OverloadedError | EngineDeadError | None = None  # why no request is accepted any more
        self._in_flight: frozenset[str] = frozenset()  # requests whose prompts the running step computes
        self._closing = False
        self._stats = self._core.stats()
        sys.setswitchinterval(min(sys.getswitchinterval(), config.switch_interval_s))
        self._thread = threading.Thread(target=self._run, name="edgewise-engine", daemon=True)
        self._thread.start()

    # Any thread.

    def submit(self, request: GenerationRequest, sink: TokenSink) -> None:
        """Accept a request; `sink` hears all about it on the engine thread.

        Raises InvalidRequestError (ContextLengthError) for what can never run, OverloadedError when too many wait or the engine is
        draining, EngineDeadError after a failure or `close`. After a normal return the sink hears exactly one end.
        """
        check_request(request, self._core.decoder.vocab_size, self.config.max_model_len)
        if not request.arrival_s:
            request = replace(request, arrival_s=time.monotonic())
        seed = request.sampling.seed
        owner = ActiveRequest(request, sink, seed=secrets.randbits(63) if seed is None else seed)
        with self._lock:
            if (
                self._refusal is not None
            ):  # a fresh one: a shared exception would gather the tracebacks of all callers
                raise type(self._refusal)(self._refusal.message) from self._refusal.__cause__
            if request.request_id in self._used_ids:
                raise InvalidRequestError(f"request id {request.request_id!r} is in use", param="request_id")
            if self.config.max_waiting is not None and self._num_waiting >= self.config.max_waiting:
                raise OverloadedError(f"{self._num_waiting} requests are waiting already; try again later")
            owner.order = self._num_accepted
            self._num_accepted += 1
            self._num_waiting += 1
            self._num_unfinished += 1
            self._used_ids.add(request.request_id)
            self._inbox.put(_Submit(owner))

    def cancel(self, request_id: str) -> None:
        """End a request within a step; its sink hears "cancelled" unless it ended before. Unknown ids are passed over."""
        self._inbox.put(_Cancel(request_id))
        if request_id in self._in_flight:
            self._decoder.cancel_step()

    def finish_choice(self, request_id: str, choice: int) -> None:
        """End one choice as if it had stopped by itself: a stop string was found in its text. Others go on."""
        self._inbox.put(_FinishChoice(request_id, choice))

    def cached_prefix_len(self, request: GenerationRequest) -> int:
        """How many leading tokens of a prompt the cache would save if its request ran now. Waits for nothing.

        An estimate: what other requests do before this one is scheduled can add to it or take away. Events tell the true count.
        """
        num_prompt = len(request.prompt_token_ids)
        first_output = num_prompt - 1 if request.outputs_from is None else request.outputs_from
        salt = request.cache_salt.encode("utf-8", "surrogatepass")
        return self._core.kv.known_len(salt, request.prompt_token_ids, min(first_output, num_prompt - 1))

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes. Returns whether that was done: False when the engine has ended.

        Waits for the running step, so it is not for sinks and listeners.
        """
        done: Future[bool] = Future()
        with self._lock:
            if self._closing or not self._thread.is_alive():
                return False
            self._inbox.put(_ResetCache(done))
        return done.result()

    def stats(self) -> EngineStats:
        """The snapshot after the latest step."""
        return self._stats

    def add_listener(self, listener: EngineListener) -> None:
        """Tell `listener` of every step and every ended request from now on."""
        self._inbox.put(_AddListener(listener))

    @property
    def embed_dim(self) -> int:
        """Length of the vectors that requests with `pooling` are answered with."""
        return self._core.decoder.spec.embed_dim

    @property
    def error(self) -> Exception | None:
        """Why the engine accepts no more requests, if so."""
        return self._refusal

    def drain(self, timeout_s: float) -> bool:
        """Refuse new requests and wait until all accepted ones have ended. Returns whether they have in time."""
        with self._all_ended:
            if self._refusal is None:
                self._refusal = OverloadedError("the engine is shutting down")
            return self._all_ended.wait_for(lambda: not self._num_unfinished, timeout_s)

    def close(self) -> None:
        """Cancel everything and end the thread, within a second; then close the decoder. Safe to call twice."""
        with self._lock:
            first = not self._closing
            self._closing = True
            if self._refusal is None or isinstance(self._refusal, OverloadedError):
                self._refusal = EngineDeadError("the engine is closed")
            self._inbox.put(_Close())
        if threading.current_thread() is self._thread:
            return
        self._decoder.cancel_step()
        self._thread.join(CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            logger.error("the engine thread did not end within %g s; its decoder stays open", CLOSE_TIMEOUT_S)
        elif first:
            self._decoder.close()

    # The engine thread.

    def _run(self) -> None:
        try:
            while self._receive():
                self._step()
                self._stats = self._core.stats()
            self._end_all("cancelled", RequestCancelledError("the engine is closing"), sound=True)
        except BaseException as error:
            logger.critical("the engine ended with an error", exc_info=True)
            dead = EngineDeadError(f"the engine ended with an error: {error!r}")
            dead.__cause__ = error
            self._end_all("error", dead, sound=False)

    def _receive(self) -> bool:
        """Handle all messages, waiting for one when there is nothing to do. False: close."""
        while not self._core.has_work or self._seen or not self._inbox.empty():
            message = self._seen.popleft() if self._seen else self._inbox.get()
            if isinstance(message, _Submit):
                self._core.add(message.owner)
            elif isinstance(message, _Cancel):
                self._core.cancel(message.request_id)
            elif isinstance(message, _FinishChoice):
                self._core.finish_choice(message.request_id, message.choice)
            elif isinstance(message, _ResetCache):
                self._core.kv.reset()
                message.done.set_result(True)
            elif isinstance(message, _AddListener):
                self._core.book.listeners.append(message.listener)
            else:
                return False
            if not self._core.has_work:
                self._stats = self._core.stats()
        return True

    def _step(self) -> None:
        plan = self._core.plan()
        self._in_flight = plan.prefill_request_ids()
        if self._in_flight:
            self._stats = self._core.stats()  # a prefill may take long, and its requests run already
        try:
            if plan.chunks and not self._is_void():
                self._core.run(plan)
        finally:
            self._in_flight = frozenset()

    def _is_void(self) -> bool:
        """Whether a message that came during planning makes a prefill step pointless. Messages are handled after the step."""
        while self._in_flight and not self._inbox.empty():
            message = self._inbox.get()
            self._seen.append(message)
            if isinstance(message, _Close) or (
                isinstance(message, _Cancel) and message.request_id in self._in_flight
            ):
                return True
        return False

    def _end_all(self, reason: str, error: Exception, *, sound: bool) -> None:
        """The thread ends: so does every request, those in the inbox too. `sound`: the books can be trusted."""
        with self._lock:
            if self._refusal is None or isinstance(self._refusal, OverloadedError):
                self._refusal = (
                    error if isinstance(error, EngineDeadError) else EngineDeadError("the engine is closed")
                )
            self._closing = True
        book = self._core.book
        while self._seen or not self._inbox.empty():
            message = self._seen.popleft() if self._seen else self._inbox.get()
            if isinstance(message, _Submit):
                book.add(message.owner)
            elif isinstance(message, _ResetCache):
                message.done.set_result(False)
        for owner in list(book.active.values()):
            book.abort(owner, reason, error, release=sound)
        if sound:
            self._stats = self._core.stats()

    def _note_scheduled(self, owner: ActiveRequest) -> None:
        with self._lock:
            self._num_waiting -= 1

    def _note_release(self, owner: ActiveRequest) -> None:
        with self._lock:
            self._used_ids.discard(owner.request.request_id)

    def _note_end(self, owner: ActiveRequest) -> None:
        with self._all_ended:
            if not owner.scheduled_s:
                self._num_waiting -= 1
            self._num_unfinished -= 1
            if not self._num_unfinished:
                self._all_ended.notify_all()
