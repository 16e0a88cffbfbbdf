"""What generates nothing: models of all upstreams in one list, health, properties, metrics, tokens; and responses that are kept."""

from __future__ import annotations

import json

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from edgewise.gateway.keys import StaticKeys
from edgewise.gateway.profile import Api, Kind, ModelCard
from tests.support.gateway_parts import FixedUpstream, gateway, upstream
from tests.support.scripted_upstream import Asked, chat_server, json_answer, scripted, stream_answer

pytestmark = pytest.mark.http


def with_cards(one: FixedUpstream, *cards: ModelCard) -> FixedUpstream:
    one.profile = one.profile.replace(models=cards)
    return one


def test_models_of_all_upstreams_are_one_list_and_one_that_is_down_hides_nothing_else():
    first = with_cards(
        upstream("http://127.0.0.1:1", "down", healthy=False), ModelCard("a", window=100, max_input=50)
    )
    second = with_cards(
        upstream("http://127.0.0.1:2", "up", kind=Kind.LLAMA),
        ModelCard("b", aliases=("gpt-4o",), window=65536, max_input=32768, raw={"meta": {"n_ctx": 65536}}),
        ModelCard("a", window=100, max_input=50),
    )
    with gateway(first, second) as url:
        entries = {entry["id"]: entry for entry in httpx.get(f"{url}/v1/models").json()["data"]}
        assert list(entries)[:3] == ["a", "b", "gpt-4o"]
        assert entries["a"]["edgewise"]["upstreams"] == ["up"]
        b = entries["b"]
        assert (b["max_model_len"], b["max_input_len"], b["context_length"]) == (65536, 32768, 65536)
        assert b["meta"] == {"n_ctx": 65536}
        assert entries["gpt-4o"]["root"] == "b"
        assert httpx.get(f"{url}/v1/models/gpt-4o").json() == entries["gpt-4o"]
        missing = httpx.get(f"{url}/v1/models/no/such")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
        assert httpx.get(f"{url}/health").json()["upstreams_up"] == 1
        assert httpx.get(f"{url}/props?model=b").json()["default_generation_settings"]["n_ctx"] == 65536


def test_names_of_the_configuration_are_listed():
    with gateway(upstream("http://127.0.0.1:1", model="m")) as url:
        entry = httpx.get(f"{url}/v1/models/by-another-name").json()
        assert (entry["id"], entry["root"], entry["max_model_len"]) == ("by-another-name", "m", 4096)


def test_health_is_503_when_nobody_answers():
    with gateway(upstream("http://127.0.0.1:1", healthy=False)) as url:
        assert httpx.get(f"{url}/health").status_code == 503
        assert httpx.get(f"{url}/ping").status_code == 503
        assert httpx.head(f"{url}/health").status_code == 503


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/models"), ("DELETE", "/metrics"), ("GET", Api.CHAT.value)]
)
def test_wrong_methods_are_405(method: str, path: str):
    with gateway(upstream("http://127.0.0.1:1")) as url:
        response = httpx.request(method, url + path)
        assert response.status_code == 405
        assert response.headers["allow"]


def test_metrics_tell_what_happened():
    with scripted(chat_server("m")) as server, gateway(upstream(server.url)) as url:
        for stream in (True, False):
            httpx.post(url + Api.CHAT.value, json={"model": "m", "messages": [], "stream": stream})
        lines = httpx.get(f"{url}/metrics").text.splitlines()
    counted = 'edgewise_gateway_requests_total{api="/v1/chat/completions",key="anonymous",status="200",upstream="one"} 2.0'
    assert counted in lines
    assert 'edgewise_gateway_upstream_up{upstream="one"} 1.0' in lines
    assert any(line.startswith("edgewise_gateway_first_byte_seconds_bucket") for line in lines)


@pytest.mark.parametrize(
    ("kind", "path", "status"),
    [
        (Kind.LLAMA, "/apply-template", 200),
        (Kind.LLAMA, "/tokenize", 200),
        (Kind.VLLM, "/tokenize", 200),
        (Kind.VLLM, "/apply-template", 404),
        (Kind.EDGE_LLM, "/tokenize", 404),
        (Kind.OPENAI, "/detokenize", 404),
    ],
)
def test_tokens_are_asked_of_upstreams_that_have_a_tokenizer(kind: Kind, path: str, status: int):
    tokens = scripted(lambda asked: json_answer({"tokens": [1, 2]}))
    with tokens as server, gateway(upstream(server.url, kind=kind)) as url:
        response = httpx.post(url + path, json={"model": "gpt-4o", "content": "x"})
        assert response.status_code == status
        assert [one.json["model"] for one in server.requests] == (["m"] if status == 200 else [])


def response_server(asked: Asked):
    """A server with /v1/responses that keeps nothing."""
    body = asked.json
    assert "previous_response_id" not in body
    number = len(body["input"]) if isinstance(body["input"], list) else 1
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": f"answer {number}", "annotations": []}],
    }
    response = {"id": f"resp_{number}", "object": "response", "status": "completed", "model": "m"}
    if not body.get("stream"):
        return json_answer({**response, "output": [message]})
    created = {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}
    completed = {"type": "response.completed", "response": {**response, "output": [message]}}
    events = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in (created, completed)]
    return stream_answer(events[0], events[1][:40], events[1][40:])


@pytest.mark.parametrize("stream", [False, True])
def test_responses_are_kept_for_upstreams_that_keep_none(stream: bool):
    with scripted(response_server) as server, gateway(upstream(server.url, apis=[Api.RESPONSES])) as url:

        def ask(**fields: object) -> None:
            body = {"model": "m", "input": "hi", "stream": stream, **fields}
            assert httpx.post(f"{url}/v1/responses", json=body).status_code == 200

        ask()
        ask(previous_response_id="resp_1", input="and?")
        texts = [item["content"][0]["text"] for item in server.requests[-1].json["input"]]
        assert texts == ["hi", "answer 1", "and?"]
        kept = httpx.get(f"{url}/v1/responses/resp_3").json()
        assert kept["output"][0]["content"][0]["text"] == "answer 3"
        items = httpx.get(f"{url}/v1/responses/resp_3/input_items?order=asc").json()["data"]
        assert [item["role"] for item in items] == ["user", "assistant", "user"]
        assert httpx.delete(f"{url}/v1/responses/resp_3").json()["deleted"] is True
        assert httpx.get(f"{url}/v1/responses/resp_3").status_code == 404
        ask(input=[{"role": "user", "content": str(i)} for i in range(9)], store=False)
        assert httpx.get(f"{url}/v1/responses/resp_9").status_code == 404


@pytest.mark.parametrize("api", [Api.RESPONSES, Api.CHAT], ids=["passed on", "translated"])
def test_another_keys_response_is_an_unknown_one(api: Api):
    """Also for its upstream, which has one key for everybody and cannot tell them apart."""
    script = response_server if api is Api.RESPONSES else chat_server("m")
    with (
        scripted(script) as server,
        gateway(upstream(server.url, apis=[api]), keys=StaticKeys(["ada", "eve"])) as url,
        httpx.Client(base_url=url, headers={"x-api-key": "ada"}) as ada,
        httpx.Client(base_url=url, headers={"x-api-key": "eve"}) as eve,
    ):
        response = ada.post("/v1/responses", json={"model": "m", "input": "hi"}).json()
        item = response["output"][0]["id"]
        num_asked = len(server.requests)

        def asked(client: httpx.Client, response_id: str, item_id: str) -> list[tuple[int, str]]:
            more = {"model": "m", "input": "and?"}
            reference = {"type": "item_reference", "id": item_id}
            answers = [
                client.get(f"/v1/responses/{response_id}"),
                client.get(f"/v1/responses/{response_id}/input_items"),
                client.post("/v1/responses", json={**more, "previous_response_id": response_id}),
                client.post("/v1/responses", json={**more, "input": [reference]}),
                client.delete(f"/v1/responses/{response_id}"),
            ]
            return [
                (one.status_code, one.text.replace(response_id, "ID").replace(item_id, "ITEM"))
                for one in answers
            ]

        assert asked(eve, response["id"], item) == asked(eve, "resp_none", "msg_none")
        assert len(server.requests) == num_asked, "nothing reached the upstream"
        assert [status for status, _ in asked(ada, response["id"], item)] == [200] * 5


def test_the_root_answers_probes_where_no_page_does():
    async def page(request: object) -> PlainTextResponse:
        return PlainTextResponse("a page")

    with gateway(upstream("http://127.0.0.1:1"), keys=StaticKeys(["k"])) as url:
        assert httpx.head(url + "/").status_code == 200
        assert "gateway" in httpx.get(url + "/").text
    with gateway(upstream("http://127.0.0.1:1"), routes=[Route("/", page)], keys=StaticKeys(["k"])) as url:
        assert httpx.get(url + "/").text == "a page"
        assert httpx.get(url + "/other").status_code == 404
