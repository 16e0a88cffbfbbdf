"""What upstreams do wrong, as a client sees it: errors in its own API's shape, streams that end well-formed, answers from elsewhere."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from edgewise.gateway.profile import Api
from tests.support.gateway_parts import FixedUpstream, gateway, upstream
from tests.support.scripted_upstream import (
    Answer,
    Hang,
    Reset,
    ScriptedUpstream,
    chat_chunk,
    chat_server,
    chat_stream,
    json_answer,
    scripted,
    stream_answer,
)

pytestmark = pytest.mark.http

BODIES = {
    Api.CHAT: {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    Api.COMPLETIONS: {"model": "m", "prompt": "hi"},
    Api.MESSAGES: {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    Api.RESPONSES: {"model": "m", "input": "hi"},
}
GENERATING = list(BODIES)


@pytest.fixture(scope="module")
def one_of_all() -> Iterator[tuple[ScriptedUpstream, FixedUpstream, str]]:
    """An upstream that speaks every API, whose script each test sets, and a gateway before it."""
    with scripted(lambda asked: json_answer({})) as server:
        one = upstream(server.url, apis=GENERATING)
        with gateway(one, retry_for_s=0.1) as url:
            yield server, one, url


OneOfAll = tuple[ScriptedUpstream, FixedUpstream, str]


def error_of(response: httpx.Response, api: Api) -> dict:
    """The error object, which must be the API's."""
    body = response.json()
    if api is Api.MESSAGES:
        assert body["type"] == "error" and set(body["error"]) >= {"type", "message"}
    else:
        assert set(body["error"]) >= {"message", "type", "param", "code"}
    return body["error"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", GENERATING)
@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 429, 500, 503])
def test_an_upstreams_http_error_is_the_clients(one_of_all: OneOfAll, api: Api, status: int, stream: bool):
    server, _, url = one_of_all
    body = {"error": {"message": "the reason", "type": "some_error", "param": None, "code": "c"}}
    answer = json_answer(body, status, retry_after="17")
    server.script = lambda asked: answer
    response = httpx.post(url + api.value, json=BODIES[api] | {"stream": stream})
    assert response.status_code == status
    assert response.headers["retry-after"] == "17"
    assert error_of(response, api)["message"] == "the reason"


@pytest.mark.parametrize(
    "body", [b"", b"Internal Server Error", b"[1]", b"<html>x</html>", b'{"detail": "no"}']
)
@pytest.mark.parametrize("api", GENERATING)
def test_an_error_that_is_no_error_object_becomes_one(one_of_all: OneOfAll, api: Api, body: bytes):
    server, _, url = one_of_all
    server.script = lambda asked: Answer(500, {"content-type": "text/plain"}, [body], framing="length")
    response = httpx.post(url + api.value, json=BODIES[api])
    assert response.status_code == 500
    assert error_of(response, api)["message"]


OVERFLOWS = [
    {
        "code": 400,
        "message": "the request exceeds the available context size, try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 5000,
        "n_ctx": 4096,
    },
    {
        "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the "
        "messages, 1000 in the completion). Please reduce the length.",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    },
]


@pytest.mark.parametrize("fields", OVERFLOWS, ids=["llama-server", "vllm"])
@pytest.mark.parametrize("api", GENERATING)
def test_a_prompt_too_long_has_the_words_that_make_agents_compact(
    one_of_all: OneOfAll, api: Api, fields: dict
):
    server, _, url = one_of_all
    server.script = lambda asked: json_answer({"error": fields}, 400)
    error = error_of(httpx.post(url + api.value, json=BODIES[api]), api)
    if api is Api.MESSAGES:
        assert error["message"] == "prompt is too long: 5000 tokens > 4096 maximum"
    else:
        assert error["code"] == "context_length_exceeded"
        assert error["message"] == fields["message"]


def last_event(body: bytes) -> dict:
    events = [part for part in body.split(b"\n\n") if part and not part.endswith(b"[DONE]")]
    lines = [line for line in events[-1].splitlines() if line.startswith(b"data:")]
    return json.loads(lines[-1][5:])


FIRST_EVENTS = {
    Api.CHAT: chat_chunk({"content": "a"}, model="m"),
    Api.COMPLETIONS: b'data: {"id": "c", "choices": [{"index": 0, "text": "a"}]}\n\n',
    Api.MESSAGES: b'event: message_start\ndata: {"type": "message_start", "message": {"id": "x"}}\n\n',
    Api.RESPONSES: b'event: response.created\ndata: {"type": "response.created", "response": {"id": "r"}}\n\n',
}


@pytest.mark.parametrize("torn", [b"", b'data: {"id": "tor'], ids=["between", "within"])
@pytest.mark.parametrize("api", GENERATING)
def test_an_upstream_that_dies_in_the_middle_leaves_a_well_formed_error_event(
    one_of_all: OneOfAll, api: Api, torn: bytes
):
    server, one, url = one_of_all
    pieces = [FIRST_EVENTS[api], *([torn] if torn else []), Reset]
    server.script = lambda asked: stream_answer(*pieces)
    num_failed = one.num_failed
    response = httpx.post(url + api.value, json=BODIES[api] | {"stream": True})
    assert response.status_code == 200
    assert response.content.startswith(FIRST_EVENTS[api])
    assert torn == b"" or torn not in response.content
    error = last_event(response.content)
    assert "one stopped in the middle" in json.dumps(error)
    assert one.num_failed == num_failed + 1
    assert response.content.endswith(b"[DONE]\n\n") == (api in (Api.CHAT, Api.COMPLETIONS))


def test_a_stream_without_framing_that_lacks_its_end_mark_has_failed():
    events = chat_stream(["a"], model="m")
    cut = Answer(200, {"content-type": "text/event-stream"}, events[:2], framing="close")
    whole = Answer(200, {"content-type": "text/event-stream"}, events, framing="close")
    answers = iter([cut, whole])
    with scripted(lambda asked: next(answers)) as server, gateway(upstream(server.url)) as url:
        body = BODIES[Api.CHAT] | {"stream": True}
        assert "error" in last_event(httpx.post(f"{url}/v1/chat/completions", json=body).content)
        assert httpx.post(f"{url}/v1/chat/completions", json=body).content == b"".join(events)


def test_an_answer_in_one_piece_that_breaks_off_is_a_502():
    broken = Answer(200, {"content-type": "application/json"}, [b'{"id": 1', Reset])
    with scripted(lambda asked: broken) as server, gateway(upstream(server.url)) as url:
        response = httpx.post(f"{url}/v1/chat/completions", json=BODIES[Api.CHAT])
        assert response.status_code == 502
        assert response.json()["error"]["code"] == "upstream_broken"
        assert len(server.requests) == 1, "what has begun is never sent again"


@pytest.mark.parametrize("api", GENERATING)
def test_nobody_there_is_a_502_soon(api: Api):
    with gateway(upstream("http://127.0.0.1:1", apis=GENERATING), retry_for_s=0.1) as url:
        response = httpx.post(url + api.value, json=BODIES[api] | {"stream": True})
        assert response.status_code == 502
        assert "one" in error_of(response, api)["message"]


def test_an_upstream_that_comes_back_soon_is_waited_for():
    with scripted(chat_server("m")) as server:
        server.kill()
        with gateway(upstream(server.url), retry_for_s=5) as url, httpx.Client() as client:
            threading.Timer(0.4, server.start).start()
            response = client.post(f"{url}/v1/chat/completions", json=BODIES[Api.CHAT])
            assert response.status_code == 200


@pytest.mark.parametrize("how", ["refused", "reset", 429, 503])
@pytest.mark.parametrize("stream", [False, True])
def test_what_was_not_begun_is_answered_elsewhere(how: str | int, stream: bool):
    first = (
        Answer(pieces=[Reset]) if how == "reset" else json_answer({}, how if isinstance(how, int) else 200)
    )
    with scripted(lambda asked: first) as bad, scripted(chat_server("m")) as good:
        if how == "refused":
            bad.kill()
        with gateway(upstream(bad.url, "bad"), upstream(good.url, "good")) as url:
            response = httpx.post(f"{url}/v1/chat/completions", json=BODIES[Api.CHAT] | {"stream": stream})
            assert response.status_code == 200
            assert response.headers["x-edgewise-upstream"] == "good"
            assert len(good.requests) == 1


@pytest.mark.parametrize("status", [400, 404, 500])
def test_other_errors_are_not_tried_elsewhere(status: int):
    with scripted(lambda asked: json_answer({}, status)) as bad, scripted(chat_server("m")) as good:
        with gateway(upstream(bad.url, "bad"), upstream(good.url, "good")) as url:
            assert httpx.post(f"{url}/v1/chat/completions", json=BODIES[Api.CHAT]).status_code == status
        assert good.requests == []


def test_where_all_are_busy_the_last_ones_answer_counts():
    def busy(seconds: str):
        return lambda asked: json_answer({"error": {"message": seconds}}, 429, retry_after=seconds)

    with (
        scripted(busy("1")) as one,
        scripted(busy("2")) as two,
        gateway(upstream(one.url, "one"), upstream(two.url, "two")) as url,
    ):
        response = httpx.post(f"{url}/v1/chat/completions", json=BODIES[Api.CHAT])
        assert (response.status_code, response.headers["retry-after"]) == (429, "2")


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_closes_its_upstream_at_once(begun: bool, stream: bool):
    pieces = [chat_chunk({"content": "a"}, model="m"), Hang] if begun else [Hang]
    answer = stream_answer(*pieces, before_s=0 if begun else 3600)
    with scripted(lambda asked: answer) as server, gateway(upstream(server.url)) as url:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/v1/chat/completions", json=BODIES[Api.CHAT] | {"stream": stream}, timeout=0.5)
        deadline = time.monotonic() + 2
        while server.num_left == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.num_left == 1


def test_a_body_too_large_is_413_and_reaches_nobody():
    with scripted(chat_server("m")) as server, gateway(upstream(server.url), max_body_bytes=1000) as url:
        for path, kind in (("/v1/chat/completions", None), ("/v1/messages", "error")):
            response = httpx.post(url + path, content=b'"' + b"x" * 2000 + b'"')
            assert response.status_code == 413
            assert response.json().get("type") == kind
        assert server.requests == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": 1}', b"\xff"])
def test_a_body_that_is_no_request_is_400(body: bytes):
    with scripted(chat_server("m")) as server, gateway(upstream(server.url)) as url:
        assert httpx.post(f"{url}/v1/chat/completions", content=body).status_code == 400
        assert server.requests == []
