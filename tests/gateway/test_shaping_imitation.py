"""Shaping against the imitation of Edge-LLM: what a coding tool sends is refused or misread without it, and right with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from edgewise.core.chat import ChatEvent, Finish, PartDelta, PartEnd, PartStart
from edgewise.core.requests import Usage
from edgewise.gateway.profile import Api, Fault, Kind, ModelCard, Profile
from edgewise.gateway.shaping import ReplyRepair, enforcement, shape
from edgewise.gateway.shaping.enforce import MAX_ATTEMPTS
from edgewise.protocols.chat import parse_request
from edgewise.serving.errors import HttpError
from tests.gateway.shaping_cases import (
    ARGUMENTS,
    TEXT_ARGUMENTS,
    TOOL,
    USER,
    call,
    messages,
    result,
    system,
    turn,
)
from tests.support.edge_llm_model import Said
from tests.support.edge_llm_rules import Rules
from tests.support.edge_llm_server import EdgeLlmServer

pytestmark = pytest.mark.http

HELLO = {"role": "user", "content": "hello"}
FAULTS = frozenset(
    (
        *(
            Fault.STRING_ARGUMENTS,
            Fault.LATE_SYSTEM,
            Fault.SEVERAL_SYSTEM,
            Fault.DEVELOPER_ROLE,
            Fault.UNKNOWN_FIELDS,
        ),
        *(
            Fault.MODEL_NAME,
            Fault.REQUIRED_CHOICE,
            Fault.NAMED_CHOICE,
            Fault.PARALLEL_CALLS,
            Fault.LEAKED_END_TOKENS,
        ),
    )
)


@pytest.fixture(scope="module")
def server() -> Iterator[EdgeLlmServer]:
    with EdgeLlmServer(Rules()) as running:
        yield running


@pytest.fixture
def upstream(server: EdgeLlmServer) -> Profile:
    return Profile(Kind.EDGE_LLM, faults=FAULTS, models=(ModelCard(server.model),))


def post(server: EdgeLlmServer, body: dict[str, Any], api: Api = Api.CHAT) -> httpx.Response:
    return httpx.post(server.url + api.value, json=body)


def shaped(
    server: EdgeLlmServer, upstream: Profile, body: dict[str, Any], api: Api = Api.CHAT
) -> dict[str, Any]:
    return shape(body, api, upstream, model=server.model).body


def test_string_and_object_arguments_cost_the_same_through_shaping(
    server: EdgeLlmServer, upstream: Profile
) -> None:
    """The measurement that found the fault: one history, its arguments as text and as an object."""

    def tokens(body: dict[str, Any]) -> int:
        return int(post(server, body).json()["usage"]["prompt_tokens"])

    as_text, as_object = (
        messages(USER, turn(call(arguments)), result(), tools=[TOOL], max_tokens=50)
        for arguments in (TEXT_ARGUMENTS, ARGUMENTS)
    )
    assert tokens(as_text) < tokens(as_object), "the imitation has the fault"
    assert (
        tokens(shaped(server, upstream, as_text))
        == tokens(shaped(server, upstream, as_object))
        == tokens(as_object)
    )


SENT: list[dict[str, Any]] = [
    messages(HELLO, user="me", store=False, metadata={}, service_tier="auto"),
    messages(HELLO, model="gpt-4o"),
    messages(system("a"), system("b"), HELLO),
    messages(HELLO, system("late"), HELLO),
    messages(system("a", "developer"), HELLO),
    messages(HELLO, presence_penalty=0.1),
    messages(HELLO, max_tokens=5, max_completion_tokens=6),
    messages(HELLO, tools=[], tool_choice="auto"),
    messages(HELLO, stream_options={"include_usage": True, "include_obfuscation": False}, stream=True),
    messages(HELLO, turn(call('{"path": ')), result(), HELLO),
    messages(HELLO, turn(call({}, "")), result(""), HELLO),
    messages(HELLO, result("lost")),
    messages(HELLO, functions=[{"name": "f", "parameters": {}}], function_call="auto"),
    messages(HELLO, reasoning={"effort": "low"}),
]


@pytest.mark.parametrize("body", SENT)
def test_what_is_refused_as_it_came_is_answered_through_shaping(
    server: EdgeLlmServer, upstream: Profile, body: dict[str, Any]
) -> None:
    assert post(server, body).status_code >= 400
    assert post(server, shaped(server, upstream, body)).status_code == 200


ANTHROPIC: list[dict[str, Any]] = [
    messages(HELLO, system("late"), HELLO, max_tokens=5),
    messages(HELLO, max_tokens=5, model="claude-sonnet-5-5"),
    messages(
        {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "x"}}]},
        max_tokens=5,
    ),
]


@pytest.mark.parametrize("body", ANTHROPIC)
def test_anthropic_bodies_are_answered_through_shaping(
    server: EdgeLlmServer, upstream: Profile, body: dict[str, Any]
) -> None:
    assert post(server, body, Api.MESSAGES).status_code >= 400
    assert post(server, shaped(server, upstream, body, Api.MESSAGES), Api.MESSAGES).status_code == 200


def events_of(response: httpx.Response) -> list[ChatEvent]:
    """A whole answer's events, as a client of the upstream reads them."""
    answer = response.json()
    message = answer["choices"][0]["message"]
    events: list[ChatEvent] = []
    if message.get("content"):
        events += [PartStart(0, "text", "t"), PartDelta(0, message["content"]), PartEnd(0)]
    for one in message.get("tool_calls") or ():
        function = one["function"]
        start = PartStart(0, "tool_call", one["id"], function["name"])
        events += [start, PartDelta(0, function["arguments"]), PartEnd(0)]
    usage = Usage(answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"])
    return [*events, Finish(0, answer["choices"][0]["finish_reason"], usage)]


def answered(server: EdgeLlmServer, upstream: Profile, body: dict[str, Any]) -> list[ChatEvent]:
    response = post(server, shaped(server, upstream, body))
    assert response.status_code == 200, response.text
    return ReplyRepair(upstream, parse_request(body).chat).push(events_of(response))


CHOICES = ["required", {"type": "function", "function": {"name": "write_file"}}]


@pytest.mark.parametrize("choice", CHOICES, ids=["required", "named"])
def test_a_choice_is_enforced_by_structured_output(
    server: EdgeLlmServer, upstream: Profile, choice: Any
) -> None:
    body = messages(HELLO, tools=[TOOL], tool_choice=choice)
    assert "tool_calls" not in post(server, body).json()["choices"][0]["message"]
    start, arguments, *_ = answered(server, upstream, body)
    assert isinstance(start, PartStart)
    assert isinstance(arguments, PartDelta)
    assert (start.kind, start.name) == ("tool_call", "write_file")
    assert json.loads(arguments.text).keys() == ARGUMENTS.keys()


def test_an_end_mark_does_not_reach_the_client(server: EdgeLlmServer, upstream: Profile) -> None:
    body = messages(HELLO)
    assert "<|endoftext|>" in post(server, body).text
    assert not any("<|" in one.text for one in answered(server, upstream, body) if isinstance(one, PartDelta))


class Asker:
    """Asks the imitation as forwarding does, and counts."""

    def __init__(self, server: EdgeLlmServer, upstream: Profile, body: dict[str, Any]) -> None:
        self.server, self.upstream, self.body = server, upstream, body
        self.bodies: list[dict[str, Any]] = []

    async def __call__(self, body: dict[str, Any]) -> list[ChatEvent]:
        self.bodies.append(body)
        response = await asyncio.to_thread(post, self.server, body)
        return ReplyRepair(self.upstream, parse_request(self.body).chat).push(events_of(response))

    async def run(self) -> list[ChatEvent]:
        first = shaped(self.server, self.upstream, self.body)
        checked = enforcement(self.body, Api.CHAT, self.upstream)
        assert checked is not None
        return await checked.enforce(first, await self(first), self)


def test_where_schemas_are_not_kept_to_the_answer_is_asked_for_again(server: EdgeLlmServer) -> None:
    upstream = Profile(Kind.EDGE_LLM, faults=FAULTS | {Fault.JSON_SCHEMA})
    asker = Asker(server, upstream, messages(HELLO, tools=[TOOL], tool_choice="required"))
    events = asyncio.run(asker.run())
    assert isinstance(events[0], PartStart)
    assert events[0].name == "write_file"
    assert len(asker.bodies) == 2
    assert asker.bodies[1]["messages"][-1]["role"] == "user"


def test_an_upstream_that_never_calls_is_an_error_in_the_end(server: EdgeLlmServer) -> None:
    upstream = Profile(Kind.EDGE_LLM, faults=FAULTS | {Fault.JSON_SCHEMA})
    asker = Asker(server, upstream, messages(HELLO, tools=[TOOL], tool_choice=CHOICES[1]))
    server.script = lambda body, prompt: Said("No.")
    with pytest.raises(HttpError, match="made none in 3 answers"):
        asyncio.run(asker.run())
    assert len(asker.bodies) == MAX_ATTEMPTS


def test_only_a_choice_that_may_be_ignored_is_checked(upstream: Profile) -> None:
    body = messages(HELLO, tools=[TOOL], tool_choice="required")
    assert enforcement(body, Api.CHAT, upstream) is not None
    assert enforcement({**body, "tool_choice": "auto"}, Api.CHAT, upstream) is None
    assert enforcement(body, Api.CHAT, Profile(Kind.EDGE_LLM)) is None
