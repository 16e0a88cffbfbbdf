"""/v1/responses over the real engine and a scripted model: answers, streams, what is kept, what is refused."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from openai.types.responses import Response

from edgewise.pipeline import Pipeline
from edgewise.serving.response_store import ResponseStore
from tests.server.conftest import MakeClient, running

URL = "/v1/responses"
ANSWERS = {
    "Say hi<|im_end|>\n<|im_start|>assistant\n": "Hello there!<|im_end|>",
    "Hello there!<|im_end|>\n<|im_start|>user\nAgain<|im_end|>\n<|im_start|>assistant\n": "Hi again.<|im_end|>",
    "ok<|im_end|>\n<|im_start|>assistant\n": "It is done.<|im_end|>",
}
SHELL = {"type": "function", "name": "shell", "parameters": {"type": "object"}, "strict": False}


@pytest.fixture
def pipeline(make: Callable[..., Pipeline]) -> Pipeline:
    return make(ANSWERS)


async def answer(client: httpx.AsyncClient, given: Any = "Say hi", **fields: Any) -> dict[str, Any]:
    response = await client.post(URL, json={"input": given, "temperature": 0, **fields})
    assert response.status_code == 200, response.text
    Response.model_validate(response.json())
    return response.json()


def events_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(block.split("\ndata: ")[1]) for block in filter(None, text.split("\n\n"))]


async def streamed(client: httpx.AsyncClient, given: Any = "Say hi", **fields: Any) -> list[dict[str, Any]]:
    body = {"input": given, "temperature": 0, "stream": True, **fields}
    response = await client.post(URL, json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return events_of(response.text)


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item.get("content") or ())


def without_ids(response: dict[str, Any]) -> dict[str, Any]:
    """What two answers to one request have in common."""
    output = [{**item, "id": None} for item in response["output"]]
    usage = {**response["usage"], "input_tokens_details": None}
    return {**response, "id": None, "created_at": None, "output": output, "usage": usage}


async def test_an_answer_in_one_piece(client: httpx.AsyncClient):
    response = await answer(client)
    assert (response["object"], response["status"], response["model"]) == (
        "response",
        "completed",
        "scripted",
    )
    assert response["id"].startswith("resp_") and text_of(response) == "Hello there!"
    usage = response["usage"]
    assert usage["output_tokens"] == 13 and usage["total_tokens"] == usage["input_tokens"] + 13


async def test_a_stream_says_the_same(client: httpx.AsyncClient):
    whole = await answer(client)
    events = await streamed(client)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in (*events[:2], events[-1])] == [
        "response.created",
        "response.in_progress",
        "response.completed",
    ]
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "Hello there!" and len(deltas) > 1
    assert without_ids(events[-1]["response"]) == without_ids(whole)
    assert {event["response"]["id"] for event in events if "response" in event} == {
        events[-1]["response"]["id"]
    }


async def test_cut_by_length(client: httpx.AsyncClient):
    response = await answer(client, max_output_tokens=4)
    assert (response["status"], text_of(response)) == ("incomplete", "Hell")
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (await streamed(client, max_output_tokens=4))[-1]["type"] == "response.incomplete"


async def test_a_tool_loop_s_history(client_of: MakeClient, make: Callable[..., Pipeline]):
    client = client_of(make(ANSWERS, max_model_len=2048))  # a window that holds the words about tools
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": '{"cmd":"ls"}'},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "ok"}]},
    ]
    tools = [SHELL, {"type": "web_search"}]
    assert text_of(await answer(client, items, tools=tools, tool_choice="none")).endswith("done.")


async def test_a_conversation_goes_on_from_a_kept_response(client: httpx.AsyncClient):
    first = await answer(client)
    second = await answer(client, "Again", previous_response_id=first["id"])
    assert text_of(second) == "Hi again." and second["previous_response_id"] == first["id"]
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
    streamed_first = (await streamed(client))[-1]["response"]
    again = await streamed(client, "Again", previous_response_id=streamed_first["id"])
    assert text_of(again[-1]["response"]) == "Hi again."
    await client.delete(f"{URL}/{first['id']}")
    third = await answer(client, "Again", previous_response_id=second["id"], max_output_tokens=1)
    assert third["usage"]["input_tokens"] > second["usage"]["input_tokens"], "nothing is missing from it"


async def test_kept_responses_are_read_and_deleted(client: httpx.AsyncClient):
    response = await answer(client)
    path = f"{URL}/{response['id']}"
    assert (await client.get(path)).json() == response
    assert (await client.get(path, params={"stream": "true"})).status_code == 400
    deleted = await client.delete(path)
    assert deleted.json() == {"id": response["id"], "object": "response", "deleted": True}
    for gone in (await client.get(path), await client.delete(path), await client.get(f"{path}/input_items")):
        assert gone.status_code == 404
        assert gone.json()["error"]["message"] == f"Response with id '{response['id']}' not found."


async def test_nothing_is_kept_where_store_is_false(client: httpx.AsyncClient):
    for response in (
        await answer(client, store=False),
        (await streamed(client, store=False))[-1]["response"],
    ):
        assert (await client.get(f"{URL}/{response['id']}")).status_code == 404
        refusal = await client.post(URL, json={"input": "Again", "previous_response_id": response["id"]})
        assert refusal.status_code == 400
        assert refusal.json()["error"]["code"] == "previous_response_not_found"
        assert refusal.json()["error"]["param"] == "previous_response_id"


async def test_input_items_are_listed(client: httpx.AsyncClient):
    first = await answer(client)
    items = [{"role": "user", "content": "Again"}]
    second = await answer(client, items, previous_response_id=first["id"], instructions="be brief")
    path = f"{URL}/{second['id']}/input_items"
    page = (await client.get(path)).json()
    roles = [item["role"] for item in page["data"]]
    assert (page["object"], roles, page["has_more"]) == ("list", ["user", "assistant", "user"], False)
    assert page["data"][0]["content"] == [{"type": "input_text", "text": "Again"}]
    assert page["data"][1]["id"] == first["output"][0]["id"]
    forward = (await client.get(path, params={"order": "asc", "limit": 2})).json()
    assert forward["data"] == page["data"][:0:-1] and forward["has_more"]
    rest = (await client.get(path, params={"order": "asc", "after": forward["last_id"]})).json()
    assert rest["data"] == page["data"][:1] and not rest["has_more"]
    assert (await client.get(path, params={"limit": 0})).status_code == 400
    assert (await client.get(path, params={"after": "x"})).status_code == 400


async def test_an_item_is_found_by_its_id(client: httpx.AsyncClient):
    first = await answer(client)
    items = [
        {"role": "user", "content": "Say hi"},
        {"type": "item_reference", "id": first["output"][0]["id"]},
        {"role": "user", "content": "Again"},
    ]
    assert text_of(await answer(client, items)) == "Hi again."


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_too_long_is_refused_before_the_stream(client: httpx.AsyncClient, stream: bool):
    items = [{"role": "user", "content": "hi"}, {"role": "user", "content": "x" * 600}]
    response = await client.post(URL, json={"input": items, "stream": stream})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "maximum context length is 512 tokens" in error["message"] and error["param"].startswith("input")


async def test_errors_name_the_fields_of_this_api(client: httpx.AsyncClient):
    for fields, param in (
        ({"max_output_tokens": 10**7}, "max_output_tokens"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x"}]}]},
            "input[0].content[0]",
        ),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input"),
    ):
        response = await client.post(URL, json={"input": "a", **fields})
        error = response.json()["error"]
        assert (response.status_code, error["type"]) == (400, "invalid_request_error")
        assert error["param"] == param and error["message"].startswith(param)


async def test_an_error_ends_the_stream_as_failed(make: Callable[..., Pipeline], client_of: MakeClient):
    client = client_of(make(ANSWERS, model={"failures": {3: RuntimeError("broken memory")}}))
    last = (await streamed(client))[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"]["code"] == "server_error"
    kept = (await client.get(f"{URL}/{last['response']['id']}")).json()
    assert kept == last["response"]


def test_signs_of_life_and_cancelling_by_id(make: Callable[..., Pipeline]):
    pipeline = make({}, model={"step_delay_s": 0.2})
    with running(pipeline, keep_alive_s=0.05) as url, httpx.Client(base_url=url, timeout=20) as client:
        body = {"input": "go on", "stream": True, "temperature": 0}
        with client.stream("POST", URL, json=body) as response:
            events = (json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: "))
            response_id = next(events)["response"]["id"]
            first_ones = list(itertools.takewhile(lambda event: not event["type"].endswith(".delta"), events))
            assert client.get(f"{URL}/{response_id}").json()["status"] == "in_progress"
            cancelled = client.post(f"{URL}/{response_id}/cancel")
            assert cancelled.json()["status"] == "cancelled"
            rest = list(events)
        assert [event["type"] for event in first_ones].count("response.in_progress") > 1
        assert rest[-1]["response"]["status"] == "cancelled"
        again = client.post(f"{URL}/{response_id}/cancel")
        assert (again.status_code, again.json()["error"]["code"]) == (400, "not_in_progress")
        assert client.post(f"{URL}/resp_none/cancel").status_code == 404


async def test_the_application_remembers_only_so_much(make: Callable[..., Pipeline], client_of: MakeClient):
    client = client_of(make(ANSWERS), max_stored_responses=2)
    kept = [await answer(client) for _ in range(3)]
    statuses = [(await client.get(f"{URL}/{response['id']}")).status_code for response in kept]
    assert statuses == [404, 200, 200]


def entry(name: str, text: str = "") -> dict[str, Any]:
    return {"id": f"resp_{name}", "output": [{"id": f"msg_{name}_0", "type": "message", "text": text}]}


def test_the_store_forgets_what_was_used_longest_ago():
    store = ResponseStore(2, 10_000).of("")
    store.put(entry("a"), [])
    store.put(entry("b"), [])
    assert store.get("resp_a") is not None
    store.put(entry("c"), [])
    assert [store.get(f"resp_{name}") is not None for name in "abc"] == [True, False, True]
    assert store.item("msg_b_0") is None and store.item("msg_c_0") == entry("c")["output"][0]


def test_the_store_is_bounded_by_bytes():
    everything = ResponseStore(100, 3000)
    store = everything.of("")
    for name in "abcdef":
        store.put(entry(name, "x" * 800), [])
    assert 0 < len(everything) < 6 and everything.size_bytes <= 3000
    assert store.get("resp_f") is not None and store.get("resp_a") is None
    store.put(entry("big", "x" * 4000), [])
    assert store.get("resp_big") is None and store.get("resp_f") is not None, (
        "what cannot fit displaces nothing"
    )
    for name in "abcdef":
        store.delete(f"resp_{name}")
    assert (len(everything), everything.size_bytes) == (0, 0)


def test_a_call_that_was_cut_off_is_no_history():
    store = ResponseStore(1, 10_000).of("")
    call = {"id": "fc_a_0", "type": "function_call", "status": "incomplete", "call_id": "c", "name": "n"}
    store.put({"id": "resp_a", "output": [call, {"type": "message", "id": "msg_a_1"}]}, [{"id": "in"}])
    assert store.context_of("resp_a") == [{"id": "in"}, {"type": "message", "id": "msg_a_1"}]
    assert store.context_of("resp_b") is None


async def test_counting_says_what_the_answer_reports(client: httpx.AsyncClient):
    body = {"input": "Say hi", "instructions": "be brief"}
    counted = (await client.post(f"{URL}/input_tokens", json=body)).json()
    response = await answer(client, body["input"], instructions=body["instructions"])
    assert counted == {
        "object": "response.input_tokens",
        "input_tokens": response["usage"]["input_tokens"],
    }
    assert (await client.post(f"{URL}/input_tokens", json={"input": "x" * 600})).json()["input_tokens"] > 600


async def test_many_at_once_keep_their_own(client: httpx.AsyncClient):
    responses = await asyncio.gather(*(answer(client) for _ in range(8)))
    assert len({response["id"] for response in responses}) == 8
    for response in responses:
        assert (await client.get(f"{URL}/{response['id']}")).json() == response


def test_an_owner_sees_nobody_elses():
    everything = ResponseStore(10, 10_000)
    ada, eve = everything.of("ada"), everything.of("eve")
    ada.put(entry("a"), [{"id": "in_a"}])
    assert eve.get("resp_a") is None and eve.context_of("resp_a") is None
    assert eve.item("in_a") is None and eve.item("msg_a_0") is None and not eve.delete("resp_a")
    eve.put(entry("a", "another"), [])
    assert ada.item("in_a") == {"id": "in_a"} and len(everything) == 2, "the same id twice, of two owners"
    ada.put(entry("a"), [])
    assert len(everything) == 2
    assert ada.delete("resp_a") and eve.delete("resp_a") and everything.size_bytes == 0


async def test_another_keys_response_is_an_unknown_one(pipeline: Pipeline, client_of: MakeClient):
    client = client_of(pipeline, api_keys=("ada", "eve"))
    ada, eve = ({"authorization": f"Bearer {name}"} for name in ("ada", "eve"))
    body = {"input": "Say hi", "temperature": 0}
    kept = (await client.post(URL, json=body, headers=ada)).json()["id"]

    async def asked(who: dict[str, str], response_id: str) -> list[tuple[int, str]]:
        follow = {**body, "previous_response_id": response_id}
        answers = [
            await client.get(f"{URL}/{response_id}", headers=who),
            await client.get(f"{URL}/{response_id}/input_items", headers=who),
            await client.post(f"{URL}/{response_id}/cancel", headers=who),
            await client.post(URL, json=follow, headers=who),
            await client.post(f"{URL}/input_tokens", json=follow, headers=who),
            await client.delete(f"{URL}/{response_id}", headers=who),
        ]
        return [(one.status_code, one.text.replace(response_id, "ID")) for one in answers]

    assert await asked(eve, kept) == await asked(eve, "resp_none")
    assert [status for status, _ in await asked(ada, kept)] == [200, 200, 400, 200, 200, 200]
