"""Upstreams and clients that do on the wire what they should not: an answer or a clear error, in the client's API, and the next request works."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from edgewise.gateway.profile import Api, Kind
from tests.support.gateway_parts import gateway, upstream
from tests.support.scripted_upstream import (
    chat_reply,
    chat_server,
    chat_stream,
    scripted,
    stream_answer,
)

pytestmark = pytest.mark.http

CHAT = Api.CHAT.value
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
WHOLE = json.dumps(chat_reply("Hello", model="m")).encode()


class RawServer:
    """Reads a request, sends bytes, closes; `answers` are taken in turn, the last again and again. `num_requests` counts."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.num_requests = 0
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                head, _, body = _until(connection, b"\r\n\r\n").partition(b"\r\n\r\n")
                length = next(
                    (
                        int(line[15:])
                        for line in head.lower().split(b"\r\n")
                        if line.startswith(b"content-length:")
                    ),
                    0,
                )
                while len(body) < length:
                    body += connection.recv(65536)
                self.num_requests += 1
                connection.sendall(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])

    def close(self) -> None:
        self._socket.close()


def _until(connection: socket.socket, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        if not (piece := connection.recv(65536)):
            break
        data += piece
    return data


@contextlib.contextmanager
def raw(*answers: bytes) -> Iterator[RawServer]:
    server = RawServer(*answers)
    try:
        yield server
    finally:
        server.close()


def http(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body) if length is None else length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


JSON = "content-type: application/json"
UNREAD = [
    b"",
    b"garbage\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-type: appl",
    b"HTTP/1.1 20",
    b"\x16\x03\x01\x02\x00",
]
"""What has no status: it was not begun."""
MISREAD = [
    http(b"", status="204 No Content"),
    http(b"", "location: http://127.0.0.1:1/", status="307 Temporary Redirect"),
    http(b"<html>Sign in</html>", "content-type: text/html"),
    http(WHOLE, JSON, length=len(WHOLE) + 5),
    http(gzip.compress(WHOLE)[:20], JSON, "content-encoding: gzip"),
    http(WHOLE, JSON, "content-encoding: br"),
]
"""What is no answer that a client could use."""


@pytest.mark.parametrize("answer", UNREAD)
def test_an_upstream_that_speaks_no_http(answer: bytes):
    with raw(answer) as server, gateway(upstream(server.url), retry_for_s=0.1) as url:
        for stream in (False, True):
            reply = httpx.post(url + CHAT, json={**BODY, "stream": stream})
            assert reply.status_code == 502 and reply.json()["error"]["code"] == "upstream_unreachable"


@pytest.mark.parametrize("answer", MISREAD, ids=["204", "redirect", "html", "short", "cut gzip", "brotli"])
def test_an_answer_that_is_none_is_a_502_and_not_asked_for_again(answer: bytes):
    asked = [(path, stream) for path in (CHAT, Api.MESSAGES.value) for stream in (False, True)]
    with raw(answer) as server, gateway(upstream(server.url), retry_for_s=0.1) as url:
        for path, stream in asked:
            reply = httpx.post(url + path, json={**BODY, "max_tokens": 5, "stream": stream})
            assert reply.status_code == 502 and reply.json()["error"]["message"]
        assert server.num_requests == len(asked)


@pytest.mark.parametrize("path", [CHAT, Api.MESSAGES.value])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_an_answer_that_is_compressed_although_nobody_asked(path: str, coding: str):
    body = gzip.compress(WHOLE) if coding == "gzip" else zlib.compress(WHOLE)
    with raw(http(body, JSON, f"content-encoding: {coding}")) as server, gateway(upstream(server.url)) as url:
        reply = httpx.post(url + path, json={**BODY, "max_tokens": 5})
        assert reply.status_code == 200 and "Hello" in reply.text
    events = b"".join(chat_stream(["Hello"], model="m"))
    packed = gzip.compress(events)
    wire = http(packed, "content-type: text/event-stream", "content-encoding: gzip")
    with raw(wire) as server, gateway(upstream(server.url)) as url:
        reply = httpx.post(url + path, json={**BODY, "max_tokens": 5, "stream": True})
        assert reply.status_code == 200 and "Hello" in reply.text and "error" not in reply.text


def test_more_than_was_announced_is_not_the_next_answer():
    two = http(WHOLE, JSON) + http(b'{"other": 1}', JSON)
    with raw(two) as server, gateway(upstream(server.url)) as url:
        for _ in range(3):
            assert httpx.post(url + CHAT, json=BODY).json()["choices"]


NO_ANSWERS = [b'{"a":', b"[1]", b'{"choices": null}', b"{}", b'{"error": {"message": "odd", "code": 7}}']
"""Bodies of answers in one piece that came as a success."""


@pytest.mark.parametrize("body", NO_ANSWERS)
def test_a_body_that_holds_no_answer_is_a_502(body: bytes):
    with raw(http(body, JSON)) as server, gateway(upstream(server.url)) as url:
        for stream in (False, True):
            reply = httpx.post(url + CHAT, json={**BODY, "stream": stream})
            assert reply.status_code == 502 and reply.json()["error"]["message"]
            assert ("odd" in reply.text) == (b"odd" in body)


def test_a_large_body_is_looked_at_by_its_ends():
    large = json.dumps({"data": [0.5] * 100_000}).encode()
    for body, status in ((large, 200), (large[:-1], 502), (large[1:], 502)):
        with raw(http(body, JSON)) as server, gateway(upstream(server.url)) as url:
            assert httpx.post(url + CHAT, json=BODY).status_code == status


CUT = [
    [],
    chat_stream(["Hello", " there"], model="m")[:2],
    [*chat_stream(["Hello", " there"], model="m")[:2], b'data: {"id": "x", "cho'],
]


@pytest.mark.parametrize("pieces", CUT, ids=["nothing", "no end", "half an event"])
def test_a_stream_that_its_framing_ends_too_early_ends_in_an_error(pieces: list[bytes]):
    with scripted(lambda asked: stream_answer(*pieces)) as server, gateway(upstream(server.url)) as url:
        text = httpx.post(url + CHAT, json={**BODY, "stream": True}).text
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events[-1] == "[DONE]" and "stopped in the middle" in json.loads(events[-2])["error"]["message"]
    assert all(isinstance(json.loads(event), dict) for event in events[:-1])


def test_a_stream_that_only_lacks_its_mark_is_whole_and_gets_it():
    *pieces, mark = chat_stream(["Hello"], model="m")
    with scripted(lambda asked: stream_answer(*pieces)) as server, gateway(upstream(server.url)) as url:
        assert httpx.post(url + CHAT, json={**BODY, "stream": True}).content == b"".join(pieces) + mark


def test_an_answer_in_one_piece_to_a_request_for_a_stream_is_made_one():
    with raw(http(WHOLE, JSON)) as server, gateway(upstream(server.url)) as url:
        reply = httpx.post(url + CHAT, json={**BODY, "stream": True})
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert "".join(_texts(reply.text)) == "Hello" and reply.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    "usage", [{"prompt_tokens": "many"}, {"prompt_tokens": None}, {"completion_tokens": -3}, 7]
)
def test_counts_that_are_none_count_as_none(usage: Any):
    whole = json.dumps({**chat_reply("Hello", model="m"), "usage": usage}).encode()
    with raw(http(whole, JSON)) as server, gateway(upstream(server.url)) as url:
        reply = httpx.post(url + Api.MESSAGES.value, json={**BODY, "max_tokens": 5})
        assert reply.status_code == 200 and reply.json()["usage"]["output_tokens"] == 0


def test_choices_that_nobody_asked_for_are_left_out():
    answer = chat_reply("Hello", model="m")
    answer["choices"] = [answer["choices"][0], {**answer["choices"][0], "index": 1}]
    with raw(http(json.dumps(answer).encode(), JSON)) as server, gateway(upstream(server.url)) as url:
        reply = httpx.post(url + Api.COMPLETIONS.value, json={"model": "m", "prompt": "hi"})
        assert [choice["text"] for choice in reply.json()["choices"]] == ["Hello"]


def test_a_list_of_faults_is_a_message():
    detail = {"detail": [{"loc": ["body", "messages"], "msg": "field required", "type": "missing"}]}
    refusal = http(json.dumps(detail).encode(), JSON, status="422 Unprocessable Entity")
    with raw(refusal) as server, gateway(upstream(server.url)) as url:
        reply = httpx.post(url + CHAT, json=BODY)
        assert (reply.status_code, reply.json()["error"]["message"]) == (422, "body.messages: field required")


@pytest.mark.parametrize("stream", [False, True])
def test_who_answers_is_said_by_who_stands_in_front(stream: bool):
    inner = ("x-edgewise-upstream: inner", "x-edgewise-dropped-fields: seed")
    body = b"".join(chat_stream(["Hello"], model="m")) if stream else WHOLE
    kind = "content-type: text/event-stream" if stream else JSON
    with raw(http(body, kind, *inner)) as server, gateway(upstream(server.url)) as url:
        headers = httpx.post(url + CHAT, json={**BODY, "stream": stream}).headers
        assert headers.get_list("x-edgewise-upstream") == ["one"]
        assert headers["x-edgewise-dropped-fields"] == "seed"


WORDS = ["Grüße ", "世界 ", "🙂"]


@pytest.mark.parametrize("api", [Api.CHAT, Api.MESSAGES, Api.RESPONSES])
def test_events_cut_anywhere_with_any_line_end(api: Api):
    pieces: list[bytes] = []
    body = {**BODY, "input": "hi", "max_tokens": 9, "stream": True}
    if api is Api.RESPONSES:
        del body["messages"]
    with scripted(lambda asked: stream_answer(*pieces)) as server, gateway(upstream(server.url)) as url:
        for line_end, size in itertools.product([b"\n", b"\r\n", b"\r"], [1, 7, 1000]):
            wire = b"".join(
                b"data: " + json.dumps(json.loads(event[6:]), ensure_ascii=False).encode() + 2 * line_end
                for event in chat_stream(WORDS, model="m")[:-1]
            )
            wire += b"data: [DONE]" + 2 * line_end
            pieces[:] = [wire[i : i + size] for i in range(0, len(wire), size)]
            text = httpx.post(url + api.value, json=body, timeout=20).content.decode()
            assert "".join(_texts(text)) == "".join(WORDS), (line_end, size)
            assert '"error"' not in text.replace('"error":null', "")


def _texts(stream: str) -> Iterator[str]:
    for line in stream.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            for choice in event.get("choices") or ():
                yield choice["delta"].get("content") or ""
            delta = event.get("delta")
            if event.get("type") in ("content_block_delta", "response.output_text.delta"):
                yield delta if isinstance(delta, str) else delta["text"]


BARE_END = b'data: {"type": "response.completed"}\n\n'
GARBAGE = [
    b"data: {broken\n\n",
    b"data: 7\n\ndata: []\n\ndata: null\n\n",
    b'data: {"choices": 7}\n\n',
    b'data: {"choices": [{"delta": {"tool_calls": [7]}}]}\n\n',
    BARE_END,
    b'data: response.completed, "type":"response.completed"\n\n',
    b'event: message_start\ndata: {"type": "message_start", "message": 7}\n\n',
    b"\xff\xfe\x00\n\n",
    b"x" * 100_000,
    b"",
]


@pytest.mark.parametrize("spoken", [Api.CHAT, Api.MESSAGES, Api.RESPONSES])
@pytest.mark.parametrize("asked", [Api.CHAT, Api.MESSAGES, Api.RESPONSES])
def test_streams_of_garbage_end_as_they_should(spoken: Api, asked: Api, caplog: pytest.LogCaptureFixture):
    answer = [b""]
    with (
        scripted(lambda one: stream_answer(answer[0])) as server,
        gateway(upstream(server.url, apis=[spoken])) as url,
    ):
        for garbage in GARBAGE:
            answer[0] = garbage
            body: dict[str, Any] = {"model": "m", "max_tokens": 9, "stream": True}
            body |= {"input": "hi"} if asked is Api.RESPONSES else {"messages": BODY["messages"]}
            reply = httpx.post(url + asked.value, json=body, timeout=20)
            assert reply.status_code in (200, 502), (garbage, reply.text)
            if asked is not spoken and garbage != BARE_END:
                assert "error" in reply.text, (garbage, reply.text)
    assert "Traceback" not in caplog.text and "a request failed" not in caplog.text, caplog.text[-2000:]


# -- clients


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with scripted(chat_server("m")) as server, gateway(upstream(server.url), max_body_bytes=1 << 20) as url:
        yield url


def connected(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def exchange(url: str, data: bytes) -> bytes:
    """All that comes until the connection is closed, which the request has to ask for."""
    with connected(url) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def request(body: bytes, *headers: str, line: str = f"POST {CHAT} HTTP/1.1", length: bool = True) -> bytes:
    lines = [line, "host: x", *headers, *([f"content-length: {len(body)}"] if length else [])]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def test_chunked_bodies_and_http_1_0(served: str):
    body = json.dumps(BODY).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:5], body[5:])) + b"0\r\n\r\n"
    answer = exchange(
        served, request(chunks, "transfer-encoding: chunked", "connection: close", length=False)
    )
    assert answer.startswith(b"HTTP/1.1 200") and b"Hello" in answer
    old = exchange(served, request(body, line=f"POST {CHAT} HTTP/1.0"))
    assert b" 200 " in old.splitlines()[0] and b"Hello" in old
    streamed = json.dumps({**BODY, "stream": True}).encode()
    old = exchange(served, request(streamed, line=f"POST {CHAT} HTTP/1.0"))
    assert b" 200 " in old.splitlines()[0] and b"data: [DONE]" in old


def test_requests_one_after_another_on_one_connection(served: str):
    body = json.dumps(BODY).encode()
    last = request(body, "connection: close")
    answers = exchange(served, request(body) + request(b"{}") + last)
    assert answers.count(b"HTTP/1.1 200") == 3, "an empty object is the upstream's to judge"


@pytest.mark.parametrize(
    "head",
    [
        ["transfer-encoding: chunked", "content-length: 5"],
        ["content-length: 5", "content-length: 6"],
        ["content-length: -1"],
        ["content-length: 1, 2"],
        ["transfer-encoding: chunked, identity"],
        ["x-y: a\r\n b\x00"],
        ["bad header: 1"],
    ],
)
def test_requests_that_could_be_read_in_two_ways_are_refused(head: list[str]):
    hidden = request(b"{}", line="DELETE /v1/responses/resp_1 HTTP/1.1")
    with scripted(chat_server("m")) as server, gateway(upstream(server.url)) as url:
        answer = exchange(url, request(b"0\r\n\r\n" + hidden, *head, "connection: close", length=False))
        assert answer.split(b" ", 2)[1:2] in ([], [b"400"]), answer[:200]
        assert not server.requests


def test_headers_of_a_client_cannot_begin_another_request():
    with scripted(chat_server("m")) as server, gateway(upstream(server.url)) as url:
        odd = {"user-agent": "a\tb\xff", "x-request-id": "1" * 9000, "traceparent": "\xe9"}
        raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in odd.items()]
        assert httpx.post(url + CHAT, json=BODY, headers=raw_headers).status_code == 200
        (asked,) = server.asked(CHAT)
        assert asked.headers["x-request-id"] == odd["x-request-id"]


@pytest.mark.parametrize(
    "name", ["Ünïcode/模型:🙂", "a/b/c?x=1#y%20", "x" * 10_000, "", " ", "..", "a\nb\r\nset-cookie: x"]
)
def test_names_of_models(name: str):
    """Of the upstream's own model, of one that nobody has, and in a path."""
    with (
        scripted(chat_server(name or "m")) as server,
        gateway(upstream(server.url, model=name or "m")) as url,
    ):
        for stream in (False, True):
            reply = httpx.post(url + CHAT, json={**BODY, "model": name, "stream": stream})
            assert reply.status_code == 200 and "set-cookie" not in reply.headers
            assert server.requests[-1].json["model"] == (name or "m")
        counted = httpx.post(f"{url}/v1/messages/count_tokens", json={**BODY, "model": name})
        assert counted.status_code == 200
        if name.strip(" ."):
            assert httpx.get(f"{url}/v1/models/{quote(name, safe='')}").json()["id"] == name
    with scripted(chat_server("m")) as server, gateway(upstream(server.url), strict=True) as url:
        reply = httpx.post(url + CHAT, json={**BODY, "model": name})
        assert reply.status_code == 404 and reply.json()["error"]["code"] == "model_not_found"


def test_methods_paths_and_queries(served: str):
    assert httpx.post(f"{served}{CHAT}?beta=true&x=%00", json=BODY).status_code == 200
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"):
        reply = httpx.request(method, served + CHAT)
        assert reply.status_code == 405 and reply.headers["allow"] == "POST", method
    for path in (
        "//v1/chat/completions",
        "/v1/chat/completions/",
        "/v1/../v1/models",
        "/%00",
        "/v1/models/../../x",
        "/V1/MODELS",
    ):
        answer = exchange(served, request(b"", "connection: close", line=f"GET {path} HTTP/1.1"))
        assert answer.split(b" ", 2)[1] in (b"404", b"405"), path
    assert httpx.head(f"{served}/health").content == b""
    absolute = exchange(served, request(b"", "connection: close", line="GET http://x/v1/models HTTP/1.1"))
    assert absolute.split(b" ", 2)[1] in (b"200", b"404")
    assert exchange(served, b"GARBAGE\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_bodies_of_the_largest_size(served: str):
    filler = {**BODY, "messages": [{"role": "user", "content": "x" * ((1 << 20) - 300)}]}
    assert httpx.post(served + CHAT, json=filler).status_code == 200
    filler["messages"][0]["content"] += "x" * 400
    reply = httpx.post(served + CHAT, json=filler)
    assert reply.status_code == 413
    chunk = b"%x\r\n%s\r\n" % (1 << 20, b"x" * (1 << 20))
    with connected(served) as connection:
        connection.sendall(request(2 * chunk, "transfer-encoding: chunked", length=False))
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")


def test_a_client_that_reads_slowly_gets_everything():
    words = ["x" * 4000] * 1500
    with (
        scripted(lambda asked: stream_answer(*chat_stream(words, model="m"))) as server,
        gateway(upstream(server.url)) as url,
        connected(url) as connection,
    ):
        connection.sendall(request(json.dumps({**BODY, "stream": True}).encode(), "connection: close"))
        time.sleep(0.5)
        received = b"".join(iter(lambda: connection.recv(1 << 20), b""))
        assert received.count(b"x" * 4000) == 1500 and b"data: [DONE]" in received


def test_two_gateways_in_a_chain():
    with (
        scripted(chat_server("m", call=("read", '{"a": 1}'))) as server,
        gateway(upstream(server.url)) as inner,
        gateway(upstream(inner, "outer", kind=Kind.EDGEWISE, apis=list(Api))) as url,
    ):
        reply = httpx.post(url + Api.MESSAGES.value, json={**BODY, "max_tokens": 9, "stream": True})
        assert "message_stop" in reply.text and '"name":"read"' in reply.text
        assert reply.headers["x-edgewise-upstream"] == "outer", "the client's own gateway names whom it asked"
        missing = httpx.post(
            url + Api.RESPONSES.value, json={"model": "m", "input": "x", "previous_response_id": "r"}
        )
        assert missing.status_code == 400
