"""POST /v1/completions over the real engine and a scripted model."""

from __future__ import annotations

import json
import threading
from itertools import chain
from typing import Any

import httpx

from edgewise.protocols.logprobs import LogprobWriter
from edgewise.text import FimTokens
from tests.server.conftest import MakeClient
from tests.support.byte_tokenizer import ByteTokenizer
from tests.support.scripted_model import scripted_outputs

URL = "/v1/completions"


async def complete(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post(URL, json={"prompt": "Once upon", "temperature": 0, **fields})
    assert response.status_code == 200, response.text
    return response.json()


async def stream(client: httpx.AsyncClient, **fields: Any) -> list[dict[str, Any]]:
    response = await client.post(
        URL, json={"prompt": "Once upon", "temperature": 0, "stream": True, **fields}
    )
    assert response.status_code == 200, response.text
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def texts(chunks: list[dict[str, Any]], count: int) -> list[str]:
    found = [""] * count
    for chunk in chunks:
        for choice in chunk["choices"]:
            found[choice["index"]] += choice["text"]
    return found


async def test_one_prompt(client: httpx.AsyncClient):
    body = await complete(client)
    assert body["object"] == "text_completion"
    assert body["choices"][0]["text"] == " a time."
    assert body["choices"][0]["finish_reason"] == "stop"
    assert texts(await stream(client), 1) == [" a time."]


async def test_the_default_length_is_sixteen(client: httpx.AsyncClient):
    body = await complete(client, prompt="no script for this")
    assert body["usage"]["completion_tokens"] == 16
    assert body["choices"][0]["finish_reason"] == "length"


async def test_many_prompts_in_every_shape(client: httpx.AsyncClient):
    ids = ByteTokenizer().encode("One")
    for prompt in (["Once upon", "One"], [ByteTokenizer().encode("Once upon"), ids], ["Once upon", ids]):
        body = await complete(client, prompt=prompt)
        assert [c["text"] for c in body["choices"]] == [" a time.", " two three"]
        assert body["usage"]["prompt_tokens"] == 12
        assert texts(await stream(client, prompt=prompt), 2) == [" a time.", " two three"]
    assert (await complete(client, prompt=ids))["choices"][0]["text"] == " two three"


async def test_many_prompts_with_many_choices(client: httpx.AsyncClient):
    body = await complete(client, prompt=["Once upon", "One"], n=2)
    assert [c["text"] for c in body["choices"]] == [" a time."] * 2 + [" two three"] * 2
    chunks = await stream(client, prompt=["Once upon", "One"], n=2, stream_options={"include_usage": True})
    assert texts(chunks, 4) == [" a time."] * 2 + [" two three"] * 2
    assert chunks[-1]["usage"] | {"prompt_tokens_details": 0} == body["usage"] | {"prompt_tokens_details": 0}


async def test_echo_with_logprobs_scores_the_prompt(client: httpx.AsyncClient):
    body = await complete(client, echo=True, logprobs=1, max_tokens=2)
    choice = body["choices"][0]
    assert choice["text"] == "Once upon a"
    assert choice["logprobs"]["tokens"] == list("Once upon a")
    assert choice["logprobs"]["text_offset"] == list(range(11))
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert all(value <= 0 for value in choice["logprobs"]["token_logprobs"][1:])
    chunks = await stream(client, echo=True, logprobs=1, max_tokens=2)
    assert texts(chunks, 1) == ["Once upon a"]
    scored = [c["choices"][0]["logprobs"] for c in chunks if c["choices"][0]["logprobs"]]
    assert (
        list(chain.from_iterable(entry["token_logprobs"] for entry in scored))
        == choice["logprobs"]["token_logprobs"]
    )


async def test_scoring_without_generating(client: httpx.AsyncClient):
    body = await complete(client, echo=True, logprobs=0, max_tokens=0)
    assert body["choices"][0]["text"] == "Once upon"
    assert len(body["choices"][0]["logprobs"]["tokens"]) == 9
    assert body["usage"]["completion_tokens"] == 0


async def test_echo_of_token_ids_is_their_text(client: httpx.AsyncClient):
    body = await complete(client, prompt=ByteTokenizer().encode("One"), echo=True, max_tokens=1)
    assert body["choices"][0]["text"] == "One "


async def test_a_suffix_needs_a_model_with_its_tokens(client: httpx.AsyncClient):
    response = await client.post(URL, json={"prompt": "def f(", "suffix": "return 1"})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "suffix"
    assert "fill-in-the-middle" in response.json()["error"]["message"]


async def test_more_prompts_than_allowed(make: Any, client_of: MakeClient):
    client = client_of(make(), max_choices=4)
    response = await client.post(URL, json={"prompt": ["a", "b", "c"], "n": 2})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt")
    assert (await client.post(URL, json={"prompt": ["a", "b"], "n": 2})).status_code == 200


async def test_a_bad_prompt_among_many_names_its_place(client: httpx.AsyncClient):
    for bad, word in (([5000], "5000"), ("x" * 600, "maximum context length is 512")):
        response = await client.post(URL, json={"prompt": [[1], bad]})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "prompt[1]"
        assert word in response.json()["error"]["message"]


async def test_a_suffix_asks_for_the_middle(make: Any, client_of: MakeClient):
    tokenizer = ByteTokenizer()
    pre, suf, mid = (tokenizer.special_tokens[f"<|fim_{part}|>"] for part in ("prefix", "suffix", "middle"))
    asked = (pre, *b"def f(", suf, *b"return 1", mid)
    answer = [*b"x):", tokenizer.special_tokens["</s>"]]
    pipeline = make(script=scripted_outputs({asked: answer}))
    pipeline.tokenizer.fim = FimTokens(pre, suf, mid)
    body = await complete(client_of(pipeline), prompt="def f(", suffix="return 1")
    assert body["choices"][0]["text"] == "x):"
    assert body["usage"]["prompt_tokens"] == len(asked)


async def test_answers_that_can_be_large_are_written_beside_the_event_loop(
    client: httpx.AsyncClient, monkeypatch: Any
):
    threads: list[int] = []
    plain = LogprobWriter.completion

    def watched(self: LogprobWriter, *arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return plain(self, *arguments)

    monkeypatch.setattr(LogprobWriter, "completion", watched)
    await complete(client, logprobs=5, max_tokens=2)
    await stream(client, logprobs=5, max_tokens=2)
    assert len(threads) >= 2 and threading.get_ident() not in threads
