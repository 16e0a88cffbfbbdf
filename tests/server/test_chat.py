"""POST /v1/chat/completions over the real engine and a scripted model."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import httpx
import pytest

from edgewise.core.chat import Message
from edgewise.pipeline import Pipeline
from tests.server.conftest import MakeClient

HI = [{"role": "user", "content": "Say hi"}]
URL = "/v1/chat/completions"


async def chat(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post(URL, json={"messages": HI, **fields})
    assert response.status_code == 200, response.text
    return response.json()


async def stream(client: httpx.AsyncClient, url: str = URL, **fields: Any) -> list[dict[str, Any]]:
    response = await client.post(url, json={"messages": HI, "stream": True, **fields})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def text_of(chunks: list[dict[str, Any]], choice: int = 0) -> str:
    deltas = [c["delta"] for chunk in chunks for c in chunk["choices"] if c["index"] == choice]
    return "".join(delta.get("content", "") for delta in deltas)


async def test_an_answer_in_one_piece(client: httpx.AsyncClient):
    body = await chat(client, temperature=0)
    assert body["object"] == "chat.completion" and body["model"] == "scripted"
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello there!"}
    assert choice["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == 13, "twelve letters and the end of the turn"
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + 13


async def test_a_stream_says_the_same(client: httpx.AsyncClient):
    whole = await chat(client, temperature=0)
    chunks = await stream(client, temperature=0, stream_options={"include_usage": True})
    assert text_of(chunks) == whole["choices"][0]["message"]["content"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert chunks[-1]["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]


@pytest.mark.parametrize("url", [URL, "/v1/completions"])
async def test_llama_servers_timings_come_with_the_end(client: httpx.AsyncClient, url: str):
    asked = {"prompt": "greet", "temperature": 0, "max_tokens": 5}
    (await client.post(url, json={"messages": HI, **asked})).raise_for_status()  # now the prompt is cached
    body = (await client.post(url, json={"messages": HI, **asked})).json()
    timings = body["timings"]
    usage = body["usage"]
    assert timings["cache_n"] == usage["prompt_tokens_details"]["cached_tokens"] > 0
    assert timings["cache_n"] + timings["prompt_n"] == usage["prompt_tokens"]
    assert timings["predicted_n"] == usage["completion_tokens"] == 5
    assert timings["predicted_per_second"] == pytest.approx(5e3 / timings["predicted_ms"])
    chunks = await stream(client, url, **asked)
    (last,) = [chunk for chunk in chunks if "timings" in chunk]
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["timings"].keys() == timings.keys()


@pytest.mark.parametrize(
    "content",
    [
        "Say hi",
        [{"type": "text", "text": "Say hi"}],
        [{"type": "text", "text": "Say"}, {"type": "text", "text": "hi"}],
    ],
)
async def test_content_as_text_or_parts(client: httpx.AsyncClient, content: Any):
    body = await chat(client, messages=[{"role": "user", "content": content}], max_tokens=3, temperature=0)
    assert body["usage"]["completion_tokens"] == 3


async def test_cut_by_length(client: httpx.AsyncClient):
    (choice,) = (await chat(client, max_tokens=4, temperature=0))["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Hell", "length")


async def test_a_stop_string_is_reported(client: httpx.AsyncClient):
    (choice,) = (await chat(client, stop=["there"], temperature=0))["choices"]
    assert choice["message"]["content"] == "Hello "
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "there")
    chunks = await stream(client, stop=["there"], temperature=0)
    assert text_of(chunks) == "Hello "
    assert chunks[-1]["choices"][0]["stop_reason"] == "there"


async def test_a_trailing_assistant_turn_is_continued(client: httpx.AsyncClient):
    messages = [*HI, {"role": "assistant", "content": "The list is:"}]
    body = await chat(client, messages=messages, temperature=0)
    assert body["choices"][0]["message"]["content"] == " one, two"
    echoed = await chat(client, messages=messages, temperature=0, echo=True)
    assert echoed["choices"][0]["message"]["content"] == "The list is: one, two"
    chunks = await stream(client, messages=messages, temperature=0, echo=True)
    assert text_of(chunks) == "The list is: one, two"


async def test_several_choices(client: httpx.AsyncClient):
    body = await chat(client, n=3, temperature=0, max_tokens=5)
    assert [(c["index"], c["message"]["content"]) for c in body["choices"]] == [
        (i, "Hello") for i in range(3)
    ]
    assert body["usage"]["completion_tokens"] == 15
    assert body["usage"]["prompt_tokens"] == (await chat(client, max_tokens=1))["usage"]["prompt_tokens"]
    chunks = await stream(client, n=3, temperature=0, max_tokens=5)
    assert [text_of(chunks, i) for i in range(3)] == ["Hello"] * 3


async def test_logprobs_streamed_and_whole(client: httpx.AsyncClient):
    whole = await chat(client, logprobs=True, top_logprobs=2, temperature=0, max_tokens=5)
    content = whole["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in content] == list("Hello")
    assert all(len(entry["top_logprobs"]) == 2 and entry["logprob"] <= 0 for entry in content)
    chunks = await stream(client, logprobs=True, top_logprobs=2, temperature=0, max_tokens=5)
    entries = [c["choices"][0]["logprobs"]["content"] for c in chunks if c["choices"][0]["logprobs"]]
    assert list(chain.from_iterable(entries)) == content


async def test_token_ids_and_prompt_logprobs(client: httpx.AsyncClient, pipeline: Pipeline):
    body = await chat(client, return_token_ids=True, prompt_logprobs=1, temperature=0, max_tokens=2)
    assert body["choices"][0]["token_ids"] == list(b"He")
    assert len(body["prompt_token_ids"]) == body["usage"]["prompt_tokens"]
    scored = body["prompt_logprobs"]
    assert scored[0] is None
    assert all(str(i) in entry for i, entry in zip(body["prompt_token_ids"][1:], scored[1:], strict=True))
    chunks = await stream(client, return_token_ids=True, temperature=0, max_tokens=2)
    assert chunks[0]["prompt_token_ids"] == body["prompt_token_ids"]
    assert [c["choices"][0].get("token_ids") for c in chunks[1:3]] == [[ord("H")], [ord("e")]]


async def test_best_of_returns_n(client: httpx.AsyncClient):
    body = await chat(client, n=1, best_of=3, temperature=1, max_tokens=2)
    assert len(body["choices"]) == 1
    assert body["usage"]["completion_tokens"] == 6
    assert body["choices"][0]["logprobs"] is None


async def test_a_stream_interval_joins_tokens(client: httpx.AsyncClient):
    chunks = await stream(client, stream_interval=5, temperature=0)
    pieces = [c["choices"][0]["delta"].get("content") for c in chunks[1:-1]]
    assert pieces == ["Hello", " ther", "e!"]


async def test_usage_is_forced_where_the_server_says_so(pipeline: Pipeline, client_of: MakeClient):
    client = client_of(pipeline, force_include_usage=True)
    assert "usage" in (await stream(client, max_tokens=1))[-1]


async def test_the_prompt_is_the_template_s(client: httpx.AsyncClient, pipeline: Pipeline):
    assert pipeline.template is not None
    rendered = pipeline.template.render([Message("user", ())], add_generation_prompt=True)
    assert rendered.text.endswith("<|im_start|>assistant\n")
    tokens = (await client.post("/tokenize", json={"messages": HI})).json()
    assert tokens["count"] == (await chat(client, max_tokens=1))["usage"]["prompt_tokens"]


@pytest.mark.parametrize("name", ["", "local", "gpt-9-imaginary", "scripted", None])
async def test_any_model_name_is_answered_by_the_served_model(client: httpx.AsyncClient, name: str | None):
    assert (await chat(client, model=name, max_tokens=1))["model"] == "scripted"


async def test_strict_names_refuse_others(pipeline: Pipeline, client_of: MakeClient):
    client = client_of(pipeline, strict_model_names=True, model_aliases=("other",))
    for name, status in (("scripted", 200), ("other", 200), ("", 200), ("gpt-9-imaginary", 404)):
        response = await client.post(URL, json={"messages": HI, "model": name, "max_tokens": 1})
        assert response.status_code == status, name
    assert response.json()["error"]["code"] == "model_not_found"
    assert "scripted" in response.json()["error"]["message"]


async def test_a_request_may_name_its_own_id(client: httpx.AsyncClient):
    first, second = [await chat(client, request_id="mine", max_tokens=1) for _ in range(2)]
    assert first["id"] == second["id"] == "mine"


async def test_a_request_can_keep_its_context_to_itself(client: httpx.AsyncClient):
    async def cached(**fields: Any) -> int:
        usage = (
            await chat(client, messages=[{"role": "user", "content": "x" * 80}], max_tokens=1, **fields)
        )["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    assert await cached(reuse_context=False) == 0
    assert await cached() == 0, "nobody finds what it computed"
    assert await cached() > 0
    assert await cached(reuse_context=False) == 0, "and it uses nothing of others"
