"""A request of one API answered by an upstream that speaks another: the client's body -> ChatRequest -> the upstream's body, and back.

The formats themselves are in `protocols`; here they are paired. Both sides may be the same API: then what passes is only repaired on its way.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import orjson

from edgewise.core.chat import ChatEvent, Failed, Finish
from edgewise.core.errors import UpstreamError
from edgewise.gateway.calls import Call
from edgewise.gateway.dialects import ClientDialect, Wanted
from edgewise.gateway.outlets import BeforeAnswer
from edgewise.gateway.profile import Api, Profile
from edgewise.gateway.shaping.reply import ReplyRepair, loses_schema
from edgewise.gateway.shaping.step import Body
from edgewise.protocols import (
    chat_client,
    chat_replies,
    messages_client,
    messages_replies,
    responses_client,
    responses_replies,
)
from edgewise.protocols.reply import Reply, ReplyHead
from edgewise.protocols.sse import SseEvent, SseParser
from edgewise.protocols.stream import StreamEncoder
from edgewise.serving.errors import HttpError


class StreamParser(Protocol):
    """An upstream's events -> chat events."""

    def feed(self, event: SseEvent, /) -> list[ChatEvent]: ...

    def close(self) -> list[ChatEvent]: ...


@dataclass(frozen=True, slots=True)
class UpstreamDialect:
    """One API from a client's side."""

    encode_request: Callable[..., dict[str, Any]]  # (ChatRequest, *, model)
    parse_response: Callable[[Any], list[ChatEvent]]
    parser: Callable[[], StreamParser]


SPOKEN = {
    Api.CHAT: UpstreamDialect(
        chat_client.encode_request, chat_replies.parse_response, chat_replies.StreamParser
    ),
    Api.MESSAGES: UpstreamDialect(
        messages_client.encode_request, messages_replies.parse_response, messages_replies.StreamParser
    ),
    Api.RESPONSES: UpstreamDialect(
        responses_client.encode_request, responses_replies.parse_response, responses_replies.StreamParser
    ),
}
"""What an upstream can be asked in on a client's behalf, the best first."""


def spoken_with(profile: Profile, client: Api, body: Body | None = None) -> Api | None:
    """The API in which an upstream is asked for a client of another: the client's own where it speaks it, else the best it has."""
    if client in profile.apis and client in SPOKEN and not loses_schema(profile, client, body or {}):
        return client
    return next((api for api in SPOKEN if api in profile.apis), None)


@dataclass(frozen=True, slots=True)
class Translation:
    """One request on its way between two APIs. `repairs`: those of its replies so far, for their counts."""

    client: ClientDialect
    client_api: Api
    upstream_api: Api
    wanted: Wanted
    head: ReplyHead
    profile: Profile
    repairs: list[ReplyRepair] = field(default_factory=list)

    def request_body(self) -> dict[str, Any]:
        """The upstream's body, before shaping."""
        return SPOKEN[self.upstream_api].encode_request(self.wanted.chat, model=self.head.model)

    def outlet(self, before: BeforeAnswer) -> Translated:
        return Translated(self, SPOKEN[self.upstream_api].parser(), before)

    def new_repair(self) -> ReplyRepair:
        self.repairs.append(ReplyRepair(self.profile, self.wanted.chat))
        return self.repairs[-1]

    def repair_counts(self) -> Counter[str]:
        return sum((Counter(repair.counts) for repair in self.repairs), Counter())

    def encoded(self, events: list[ChatEvent]) -> Any:
        """The client's answer in one piece. Raises the error of an answer that failed."""
        reply = Reply.empty(self.wanted.options.num_choices)
        reply.add(events)
        if reply.error is not None:
            raise reply.error
        return self.client.encode(self.head, self.wanted, reply)

    def events_of(self, body: bytes) -> list[ChatEvent]:
        """A whole answer of the upstream as chat events, repaired. Raises HttpError 502 for a body that is no answer."""
        try:
            events = SPOKEN[self.upstream_api].parse_response(orjson.loads(body))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise HttpError(
                502,
                f"The upstream's answer is no answer of {self.upstream_api.value}: {error}",
                kind="server_error",
                code="upstream_malformed",
            ) from error
        repair = self.new_repair()
        return self.wanted_of([*repair.push(events), *repair.finish()])

    def wanted_of(self, events: list[ChatEvent]) -> list[ChatEvent]:
        """Without choices that nobody asked for."""
        count = self.wanted.options.num_choices
        return [event for event in events if isinstance(event, Failed) or event.choice < count]


class Translated:
    """The stream of a translated answer."""

    def __init__(self, translation: Translation, parser: StreamParser, before: BeforeAnswer) -> None:
        self._translation = translation
        self._sse = SseParser()
        self._parser = parser
        self._repair = translation.new_repair()
        self._api = translation.client_api
        self._encoder: StreamEncoder = translation.client.encoder(translation.head, translation.wanted)
        self._opened = self._api is Api.MESSAGES and before.begun  # the client has seen a message_start
        self._num_open = translation.wanted.options.num_choices
        self.failed = False

    @property
    def complete(self) -> bool:
        return self._num_open <= 0

    def opening(self) -> bytes:
        return b"" if self._opened else self._encoder.opening()

    def feed(self, piece: bytes) -> bytes:
        events = self._sse.feed(piece)
        if not events:
            return b""
        return self.encode(self._repair.push(one for event in events for one in self._parser.feed(event)))

    def encode(self, events: list[ChatEvent]) -> bytes:
        """Repaired chat events as the client's."""
        if self.failed:
            return b""
        events = self._translation.wanted_of(events)
        for i, event in enumerate(events):
            if isinstance(event, Failed):
                return self._encoder.encode(events[:i]) + self.failure(event.error)
            self._num_open -= isinstance(event, Finish)
        return self._encoder.encode(events)

    def keepalive(self, silent_s: float) -> bytes:
        return self._encoder.keepalive()

    def closing(self) -> bytes:
        rest = [one for event in self._sse.close() for one in self._parser.feed(event)]
        last = self.encode([*self._repair.push([*rest, *self._parser.close()]), *self._repair.finish()])
        return last if self.failed else last + self._encoder.closing()

    def closing_whole(self) -> bytes:
        """The end of an answer that came in one piece."""
        return b"" if self.failed else self._encoder.closing()

    def failure(self, error: Exception) -> bytes:
        self.failed = True
        if isinstance(error, HttpError):
            error = UpstreamError(error.message, status=error.status, kind=error.kind, code=error.code)
        return self._encoder.failure(error)


def new_head(call: Call, dialect: ClientDialect, model: str) -> ReplyHead:
    begun = call.api is Api.MESSAGES  # perhaps: then under this name
    identifier = call.message_id if begun else f"{dialect.id_prefix}{uuid.uuid4().hex}"
    return ReplyHead(identifier, int(time.time()), model)


def translation_of(call: Call, dialect: ClientDialect, profile: Profile, model: str) -> Translation | None:
    """How a call reaches an upstream that is asked in another API, or None where it speaks none of ours.

    Raises InvalidRequestError in the client API's words.
    """
    upstream_api = spoken_with(profile, call.api, call.body)
    if upstream_api is None:
        return None
    wanted = dialect.read(call.body)
    if not wanted.chat.apply_chat_template and not _renders_raw(profile, upstream_api):
        wanted = replace(wanted, chat=replace(wanted.chat, apply_chat_template=True))
    return Translation(dialect, call.api, upstream_api, wanted, new_head(call, dialect, model), profile)


def _renders_raw(profile: Profile, api: Api) -> bool:
    """Whether an upstream says that it can leave a prompt as it stands."""
    return "apply_chat_template" in profile.fields.get(api, frozenset())
