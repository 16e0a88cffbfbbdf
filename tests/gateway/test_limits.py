"""Keys, their limits, and the fair queue before an upstream."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import httpx
import pytest

from edgewise.core.errors import OverloadedError
from edgewise.core.keys import KeyLimits, KeyRecord
from edgewise.gateway.keys import StaticKeys
from edgewise.gateway.limits import FairQueue, KeyGate
from edgewise.serving.errors import HttpError
from tests.support.gateway_parts import gateway, upstream
from tests.support.scripted_upstream import Answer, chat_server, json_answer, scripted

pytestmark = pytest.mark.http

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class Book:
    """A key store somebody else writes in."""

    required = True

    def __init__(self) -> None:
        self.records: dict[str, KeyRecord] = {}

    def lookup(self, key: str) -> KeyRecord | None:
        return self.records.get(key)


def post(url: str, key: str, path: str = "/v1/chat/completions", **fields: object) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(url + path, json=BODY | fields, headers=headers, timeout=20)


def test_a_key_created_or_revoked_counts_at_once():
    book = Book()
    with scripted(chat_server("m")) as server, gateway(upstream(server.url), keys=book) as url:
        assert post(url, "secret").status_code == 401
        book.records["secret"] = KeyRecord("k1")
        assert post(url, "secret").status_code == 200
        assert httpx.get(f"{url}/v1/models").status_code == 401
        assert httpx.get(f"{url}/v1/models", headers={"x-api-key": "secret"}).status_code == 200
        del book.records["secret"]
        assert post(url, "secret").status_code == 401
        assert len(server.asked("/v1/chat/completions")) == 1


def test_liveness_needs_no_key_and_a_refusal_has_the_apis_shape():
    with scripted(chat_server("m")) as server, gateway(upstream(server.url), keys=StaticKeys(["s"])) as url:
        assert httpx.get(f"{url}/health").json() == {"status": "ok", "upstreams": 1, "upstreams_up": 1}
        assert httpx.get(f"{url}/ping").status_code == 200
        for path in ("/metrics", "/props", "/v1/models"):
            assert httpx.get(url + path).status_code == 401
        refused = post(url, "wrong", "/v1/messages").json()
        assert refused["error"]["type"] == "authentication_error" and refused["type"] == "error"
        assert server.requests == []


def test_the_value_of_a_key_is_in_no_metric():
    keys = StaticKeys(["very-secret-value"])
    with scripted(chat_server("m")) as server, gateway(upstream(server.url), keys=keys) as url:
        assert post(url, "very-secret-value").status_code == 200
        headers = {"x-api-key": "very-secret-value"}
        text = httpx.get(f"{url}/metrics", headers=headers).text
    assert "very-secret-value" not in text
    record = keys.lookup("very-secret-value")
    assert record is not None and f'key="{record.id}"' in text


def test_too_many_at_once_is_429_with_retry_after_in_the_apis_shape():
    book = Book()
    book.records["k"] = KeyRecord("k", limits=KeyLimits(max_concurrent=1))
    slow = Answer(200, {"content-type": "application/json"}, [1.0, b'{"choices": []}'])
    with scripted(lambda asked: slow) as server, gateway(upstream(server.url), keys=book) as url:
        thread = threading.Thread(target=post, args=(url, "k"))
        thread.start()
        while not server.requests:
            time.sleep(0.01)
        refused = post(url, "k")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert post(url, "k", "/v1/messages").json()["error"]["type"] == "rate_limit_error"
        thread.join()
        assert post(url, "k").status_code == 200


def test_a_rate_is_a_bucket_that_fills():
    now = 0.0
    gate = KeyGate(lambda: now)
    key = KeyRecord("k", limits=KeyLimits(requests_per_minute=3))
    for _ in range(3):
        gate.enter(key)
        gate.leave(key)
    with pytest.raises(HttpError) as refused:
        gate.enter(key)
    assert refused.value.headers["Retry-After"] == "20"
    now = 19.9
    with pytest.raises(HttpError):
        gate.enter(key)
    now = 20.1
    gate.enter(key)
    gate.enter(KeyRecord("other", limits=KeyLimits(requests_per_minute=1)))


async def order_of(queue: FairQueue, wanted: list[tuple[KeyRecord, bool]]) -> list[str]:
    """The names in the order in which they were let in, each for a moment, after all of them stood in the queue."""
    order: list[str] = []

    async def one(key: KeyRecord, background: bool) -> None:
        await queue.enter(key, background=background)
        order.append(key.id)
        await asyncio.sleep(0)
        queue.leave()

    await queue.enter(KeyRecord("first"))
    tasks = []
    for key, background in wanted:
        tasks.append(asyncio.create_task(one(key, background)))
        await asyncio.sleep(0)
    queue.leave()
    await asyncio.gather(*tasks)
    assert (queue.num_inside, queue.num_waiting) == (0, 0)
    return order


async def test_keys_take_turns_however_many_requests_one_sends():
    crowd, single = KeyRecord("crowd"), KeyRecord("single")
    order = await order_of(FairQueue(1), [(crowd, False)] * 50 + [(single, False)] * 3)
    assert [i for i, name in enumerate(order) if name == "single"] == [1, 3, 5]


async def test_a_heavier_key_gets_its_share():
    light, heavy = KeyRecord("light"), KeyRecord("heavy", limits=KeyLimits(weight=3))
    order = await order_of(FairQueue(1), [(light, False)] * 20 + [(heavy, False)] * 60)
    assert Counter(order[:40])["heavy"] in range(28, 33)


async def test_interactive_goes_first_and_background_is_not_starved():
    talk, batch = KeyRecord("talk"), KeyRecord("batch")
    order = await order_of(FairQueue(1), [(batch, True)] * 10 + [(talk, False)] * 40)
    places = [i for i, name in enumerate(order) if name == "batch"]
    assert len(places) == 10
    assert sum(place < 40 for place in places) in (4, 5, 6)


async def test_who_leaves_the_queue_holds_no_place():
    queue = FairQueue(1)
    await queue.enter(KeyRecord("a"))
    leaving = asyncio.create_task(queue.enter(KeyRecord("b")))
    staying = asyncio.create_task(queue.enter(KeyRecord("c")))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.sleep(0)
    assert queue.num_waiting == 1
    queue.leave()
    await staying
    assert queue.num_inside == 1


async def test_a_place_given_to_who_is_leaving_is_given_on():
    queue = FairQueue(1)
    await queue.enter(KeyRecord("a"))
    leaving = asyncio.create_task(queue.enter(KeyRecord("b")))
    staying = asyncio.create_task(queue.enter(KeyRecord("c")))
    await asyncio.sleep(0)
    queue.leave()
    leaving.cancel()
    await asyncio.wait_for(staying, 1)
    assert queue.num_inside == 1


async def test_a_full_queue_says_so():
    queue = FairQueue(1, max_waiting=1)
    await queue.enter(KeyRecord("a"))
    waiting = asyncio.create_task(queue.enter(KeyRecord("b")))
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError):
        await queue.enter(KeyRecord("c"))
    waiting.cancel()


@pytest.mark.parametrize(("path", "status"), [("/v1/chat/completions", 503), ("/v1/messages", 529)])
def test_a_full_queue_is_overload_in_each_apis_words(path: str, status: int):
    slow = Answer(200, {"content-type": "application/json"}, [1.0, b"{}"])
    with scripted(lambda asked: slow) as server:
        one = upstream(server.url, max_in_flight=1, apis=["/v1/chat/completions", "/v1/messages"])  # type: ignore[list-item]
        with gateway(one, max_waiting=0) as url:
            thread = threading.Thread(target=post, args=(url, "k"))
            thread.start()
            while not server.requests:
                time.sleep(0.01)
            refused = post(url, "k", path, max_tokens=5)
            assert refused.status_code == status
            assert "retry-after" in refused.headers
            thread.join()


def test_an_upstream_never_has_more_at_once_than_it_takes():
    most = 0
    with scripted(lambda asked: json_answer({})) as server:

        def answer(asked):
            nonlocal most
            most = max(most, server.num_open + 1)
            return Answer(200, {"content-type": "application/json"}, [0.02, b"{}"])

        server.script = answer
        with gateway(upstream(server.url, max_in_flight=3)) as url:
            threads = [threading.Thread(target=post, args=(url, "k")) for _ in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(server.requests) == 20
        assert most <= 3
