"""An upstream killed and started again among many requests: no request hangs, each ends with a whole answer or a well-formed error."""

from __future__ import annotations

import asyncio
import json
import random

import httpx
import pytest

from edgewise.gateway.profile import Api
from tests.support.gateway_parts import gateway, upstream
from tests.support.scripted_upstream import (
    Answer,
    Asked,
    chat_reply,
    chat_stream,
    json_answer,
    scripted,
    stream_answer,
)

pytestmark = pytest.mark.http

WORDS = [f"word{i} " for i in range(12)]


def slow(asked: Asked) -> Answer:
    """Long enough for a kill to fall into the middle of many answers."""
    if asked.json.get("stream"):
        pieces = [piece for event in chat_stream(WORDS, model="m") for piece in (event, 0.01)]
        return stream_answer(*pieces)
    return Answer(**{**vars(json_answer(chat_reply("".join(WORDS), model="m"))), "before_s": 0.1})


async def ask(client: httpx.AsyncClient, url: str, stream: bool) -> str:
    """What the client got: "whole", or "error". Anything else is a failure of the test."""
    body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
    response = await client.post(url + Api.CHAT.value, json=body)
    if response.status_code != 200:
        assert response.status_code in (502, 503), response.text
        assert response.json()["error"]["message"]
        return "error"
    if not stream:
        assert response.json()["choices"][0]["message"]["content"] == "".join(WORDS)
        return "whole"
    events = response.content.split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""], "a stream without its end"
    data = [json.loads(event[6:]) for event in events[:-2] if event.startswith(b"data: ")]
    if "error" in data[-1]:
        return "error"
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in data if c["choices"])
    assert text == "".join(WORDS)
    return "whole"


async def run(url: str, servers: list, num_requests: int, at_once: int) -> list[str]:
    gate = asyncio.Semaphore(at_once)
    rng = random.Random(1)
    num_done = 0

    async def one(client: httpx.AsyncClient, stream: bool) -> str:
        nonlocal num_done
        async with gate:
            outcome = await asyncio.wait_for(ask(client, url, stream), 30)
        num_done += 1
        return outcome

    async def kill_and_restart() -> None:
        for share in (0.3, 0.6):
            while num_done < share * num_requests:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(servers[0].kill)
            await asyncio.sleep(0.3)
            servers[0].start()

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=30, limits=limits) as client:
        killing = asyncio.create_task(kill_and_restart())
        outcomes = await asyncio.gather(*(one(client, rng.random() < 0.7) for _ in range(num_requests)))
        await killing
    return outcomes


@pytest.mark.parametrize("num_requests", [100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("replicas", [1, 2])
def test_nobody_hangs_and_everybody_gets_an_answer_or_an_error(replicas: int, num_requests: int):
    with scripted(slow) as first, scripted(slow) as second:
        upstreams = [upstream(one.url, name) for name, one in (("first", first), ("second", second))][
            :replicas
        ]
        with gateway(*upstreams, commit_after_s=1, keep_alive_s=1) as url:
            outcomes = asyncio.run(run(url, [first], num_requests, at_once=20))
    assert len(outcomes) == num_requests
    assert outcomes.count("error") <= 2 * 20, "only what ran while it was killed"
    assert outcomes.count("whole") >= num_requests - 2 * 20
    assert all(one.in_flight == 0 for one in upstreams)
