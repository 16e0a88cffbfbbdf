"""Bodies nobody should send: a refusal in the API's shape or the upstream's answer, never an error of our own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from edgewise.gateway.profile import Api, Fault, Kind
from tests.support.gateway_parts import gateway, upstream
from tests.support.scripted_upstream import chat_server, scripted

pytestmark = pytest.mark.http

ODD: list[Any] = [None, True, -1, 1e300, "", "x", [], [[]], {}, {"type": 1}, [{"role": 1}], [None], ["a", {}]]
FIELDS = {
    Api.CHAT: ("messages", "tools", "tool_choice", "stop", "stream_options", "reasoning_effort", "functions"),
    Api.COMPLETIONS: ("prompt", "stop", "suffix", "n"),
    Api.MESSAGES: ("messages", "system", "tools", "tool_choice", "thinking", "stop_sequences", "max_tokens"),
    Api.COUNT_TOKENS: ("messages", "system", "tools"),
    Api.RESPONSES: (
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "previous_response_id",
        "reasoning",
        "text",
    ),
}
WHOLE = {
    Api.CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    Api.COMPLETIONS: {"prompt": "hi"},
    Api.MESSAGES: {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    Api.COUNT_TOKENS: {"messages": [{"role": "user", "content": "hi"}]},
    Api.RESPONSES: {"input": "hi"},
}


def odd_bodies(api: Api) -> list[dict[str, Any]]:
    """Each field with each odd value, and some with several at once."""
    bodies = [{**WHOLE[api], name: value} for name in FIELDS[api] for value in ODD]
    rng = random.Random(3)
    for _ in range(40):
        names = rng.sample(FIELDS[api], 2)
        bodies.append({**WHOLE[api], **{name: rng.choice(ODD) for name in names}})
    return bodies


@pytest.fixture(scope="module", params=list(Kind))
def faulty(request: pytest.FixtureRequest) -> Iterator[str]:
    """Upstreams of every kind with every fault, so that every rule looks at every body."""
    with scripted(chat_server("m")) as server:
        one = upstream(server.url, kind=request.param, max_in_flight=8)
        one.profile = one.profile.replace(faults=frozenset(Fault))
        with gateway(one, retry_for_s=0.1) as url:
            yield url


@pytest.mark.parametrize("api", FIELDS)
def test_odd_bodies_are_refused_or_answered(faulty: str, api: Api):
    with httpx.Client(base_url=faulty) as client:
        for body in odd_bodies(api):
            response = client.post(api.value, json={"model": "m", **body})
            assert response.status_code not in (500, 501), (body, response.text)
            if response.status_code != 200:
                assert response.json()["error"]["message"], body
