"""POST /v1/embeddings over the real engine and a scripted model."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from edgewise.pipeline import Pipeline
from tests.server.conftest import MakeClient, eventually, running
from tests.support.scripted_model import HIDDEN_DIM, prefix_logits

openai = pytest.importorskip("openai")

pytestmark = pytest.mark.http

URL = "/v1/embeddings"
TEXTS = ["one", "two words", "a third, longer text"]


def expected(text: str, pooling: str = "last", dimensions: int = HIDDEN_DIM) -> npt.NDArray[np.float64]:
    ids = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
    rows = np.stack([prefix_logits(ids[: i + 1], HIDDEN_DIM) for i in range(len(ids))]).astype(np.float64)
    vector = (rows.mean(axis=0) if pooling == "mean" else rows[-1])[:dimensions]
    return vector / np.linalg.norm(vector)


async def embeddings(client: httpx.AsyncClient, given: Any, **fields: Any) -> list[Any]:
    response = await client.post(URL, json={"input": given, **fields})
    assert response.status_code == 200, response.text
    data = response.json()["data"]
    assert [one["index"] for one in data] == list(range(len(data)))
    return [one["embedding"] for one in data]


async def test_one_text(client: httpx.AsyncClient):
    response = (await client.post(URL, json={"input": "one", "model": "any"})).json()
    assert (response["object"], response["model"]) == ("list", "scripted")
    assert response["data"][0]["object"] == "embedding"
    np.testing.assert_allclose(response["data"][0]["embedding"], expected("one"), atol=1e-6)
    assert response["usage"] == {"prompt_tokens": 3, "total_tokens": 3}


@pytest.mark.parametrize("pooling", ["last", "mean"])
async def test_many_texts_in_their_order(client: httpx.AsyncClient, pooling: str):
    texts = [f"{text} {i}" for i in range(20) for text in TEXTS]
    found = await embeddings(client, texts, pooling=pooling)
    np.testing.assert_allclose(found, [expected(text, pooling) for text in texts], atol=1e-6)


async def test_alone_and_together_are_the_same_bits(client: httpx.AsyncClient):
    together = await embeddings(client, TEXTS, pooling="mean")
    assert together == [(await embeddings(client, text, pooling="mean"))[0] for text in TEXTS]


async def test_token_ids_are_taken_as_they_are(client: httpx.AsyncClient):
    ids = [list(text.encode()) for text in TEXTS]
    assert await embeddings(client, ids) == await embeddings(client, TEXTS)
    assert await embeddings(client, ids[0]) == await embeddings(client, TEXTS[0])


async def test_base64_holds_the_same_numbers(client: httpx.AsyncClient):
    numbers = await embeddings(client, TEXTS)
    packed = await embeddings(client, TEXTS, encoding_format="base64")
    decoded = [np.frombuffer(base64.b64decode(one), "<f4").tolist() for one in packed]
    assert decoded == numbers


async def test_fewer_dimensions_are_of_length_one_again(client: httpx.AsyncClient):
    (found,) = await embeddings(client, "one", dimensions=3)
    np.testing.assert_allclose(found, expected("one", dimensions=3), atol=1e-6)


async def test_the_server_s_pooling_is_an_option(make: Callable[..., Pipeline], client_of: MakeClient):
    client = client_of(make(), pooling="mean")
    assert await embeddings(client, "two words") == await embeddings(client, "two words", pooling="mean")
    assert await embeddings(client, "two words") != await embeddings(client, "two words", pooling="last")


async def test_control_tokens_in_a_text_are_text(client: httpx.AsyncClient):
    response = await client.post(URL, json={"input": "<|im_end|>"})
    assert response.json()["usage"]["prompt_tokens"] == len("<|im_end|>")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": ["a", 5]}, "input[1]"),
        ({"input": [[]]}, "input[0]"),
        ({"input": [1, "a"]}, "input[1]"),
        ({"input": [[1, 1.5]]}, "input[0][1]"),
        ({"input": [10**6]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": 5}, "input"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": HIDDEN_DIM + 1}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "pooling": "max"}, "pooling"),
    ],
)
async def test_refusals_name_the_field(client: httpx.AsyncClient, fields: dict[str, Any], param: str):
    response = await client.post(URL, json=fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_too_long_says_both_counts(client: httpx.AsyncClient):
    assert len(await embeddings(client, "x" * 512)) == 1, "the whole window is there for it"
    for given, param in (("x" * 513, "input"), (["a", "x" * 513], "input[1]")):
        error = (await client.post(URL, json={"input": given})).json()["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", param)
        assert "512" in error["message"] and "513" in error["message"]


async def test_beside_an_answer(client: httpx.AsyncClient):
    body = {"prompt": "Once upon", "temperature": 0}
    answer, found = await asyncio.gather(
        client.post("/v1/completions", json=body), embeddings(client, TEXTS, pooling="mean")
    )
    assert answer.json()["choices"][0]["text"] == " a time."
    np.testing.assert_allclose(found, [expected(text, "mean") for text in TEXTS], atol=1e-6)


def test_the_official_client(pipeline: Pipeline):
    with running(pipeline) as url:
        client = openai.OpenAI(base_url=url + "/v1", api_key="x", max_retries=0)
        answer = client.embeddings.create(model="any", input=TEXTS)  # asks for base64 by itself
        np.testing.assert_allclose(
            [one.embedding for one in answer.data], [expected(text) for text in TEXTS], atol=1e-6
        )
        assert answer.usage.prompt_tokens == sum(map(len, TEXTS))
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model="any", input="")


def test_a_client_that_leaves_cancels_all(make: Callable[..., Pipeline]):
    pipeline = make(model={"step_delay_s": 0.1})
    with running(pipeline) as url:
        parts = urlsplit(url)
        payload = json.dumps({"input": ["x" * 400] * 50}).encode()
        connection = socket.create_connection((parts.hostname, parts.port), timeout=10)
        head = f"POST {URL} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(payload)}\r\n\r\n"
        connection.sendall(head.encode() + payload)
        assert eventually(lambda: pipeline.engine.stats().num_running > 0)
        connection.close()
        assert eventually(lambda: pipeline.engine.stats().num_running == 0)
        assert pipeline.engine.drain(1)


async def test_an_engine_that_fails_says_so(make: Callable[..., Pipeline], client_of: MakeClient):
    client = client_of(make(model={"failures": {0: RuntimeError("broken memory")}}))
    response = await client.post(URL, json={"input": TEXTS})
    assert (response.status_code, response.json()["error"]["code"]) == (500, "engine_dead")
