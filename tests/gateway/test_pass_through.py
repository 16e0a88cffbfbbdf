"""What needs no shaping passes as it is: bytes up, bytes down, however the upstream cuts them."""

from __future__ import annotations

import httpx
import pytest

from edgewise.gateway.profile import Api
from tests.support.gateway_parts import gateway, upstream
from tests.support.scripted_upstream import Answer, chat_stream, json_answer, scripted, stream_answer

pytestmark = pytest.mark.http

BODY = b'{ "model": "m",  "stream": true, "messages": [{"role": "user", "content": "h\\u00e9 \xc3\xa9"}], "x": 1.50 }'
WHOLE = b"".join(chat_stream(["a", "b\u00e9", "c"], model="m"))
CRLF = WHOLE.replace(b"\n", b"\r\n")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 333, 10_000])
@pytest.mark.parametrize("whole", [WHOLE, CRLF], ids=["lf", "crlf"])
def test_a_stream_is_the_upstreams_byte_for_byte(size: int, whole: bytes):
    pieces = [whole[i : i + size] for i in range(0, len(whole), size)]
    with scripted(lambda asked: stream_answer(*pieces)) as server, gateway(upstream(server.url)) as url:
        response = httpx.post(f"{url}/v1/chat/completions", content=BODY)
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.content == whole
        assert server.requests[-1].body == BODY
        assert response.headers["x-edgewise-upstream"] == "one"
        assert response.headers["x-edgewise-model"] == "m"


def test_an_answer_in_one_piece_is_the_upstreams_byte_for_byte():
    body = b'{"id":  "x", "n": 1.0, "choices": [], "model": "m"}'
    answer = Answer(200, {"content-type": "application/json; charset=utf-8"}, [body], framing="length")
    with scripted(lambda asked: answer) as server, gateway(upstream(server.url)) as url:
        sent = BODY.replace(b"true", b"false")
        response = httpx.post(f"{url}/v1/chat/completions", content=sent)
        assert response.content == body
        assert response.headers["content-type"] == "application/json; charset=utf-8"
        assert server.requests[-1].body == sent


def test_keys_and_cookies_of_clients_do_not_reach_an_upstream_and_its_own_key_does():
    with scripted(lambda asked: json_answer({})) as server:
        one = upstream(server.url, headers={"authorization": "Bearer upstreams"}, apis=[Api.MESSAGES])
        with gateway(one) as url:
            headers = {
                "x-api-key": "clients",
                "cookie": "c=1",
                "anthropic-version": "2023-06-01",
                "authorization": "Bearer clients",
            }
            httpx.post(f"{url}/v1/messages", json={"model": "m"}, headers=headers)
            got = server.requests[-1].headers
            assert got["authorization"] == "Bearer upstreams"
            assert got["anthropic-version"] == "2023-06-01"
            assert "x-api-key" not in got and "cookie" not in got


def test_another_name_for_the_model_is_rewritten():
    echo = scripted(lambda asked: json_answer({"model": asked.json["model"], "choices": []}))
    with echo as server, gateway(upstream(server.url)) as url:
        response = httpx.post(
            f"{url}/v1/chat/completions", json={"model": "gpt-4o", "messages": [], "seed": 7}
        )
        assert response.json()["model"] == "m"
        assert server.requests[-1].json == {"model": "m", "messages": [], "seed": 7}


def test_other_paths_are_not_found_and_reach_no_upstream():
    paths = ("/v1/slots", "/slots", "/models/load", "/v1/files", "/admin", "/v1/chat", "/v1/responses/x/y/z")
    with scripted(lambda asked: json_answer({})) as server, gateway(upstream(server.url)) as url:
        for path in paths:
            for method in ("GET", "POST", "DELETE"):
                response = httpx.request(method, url + path)
                assert response.status_code == 404, path
                assert response.json()["error"]["message"]
        assert server.requests == []
