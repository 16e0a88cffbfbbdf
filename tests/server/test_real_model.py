"""The whole way with SmolLM2: sockets, server, engine, kernels."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import orjson
import pytest

from edgewise.config import Config, EngineOptions, ModelOptions
from edgewise.pipeline import Pipeline, load_pipeline
from tests.server.conftest import eventually, running
from tests.server.test_live_streams import raw_post, slowest_health_s
from tests.support.models import model_path

pytestmark = pytest.mark.model

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
QUESTION = {"messages": [{"role": "user", "content": "Name a colour."}], "temperature": 0, "max_tokens": 24}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Pipeline, str]]:
    options = EngineOptions(max_model_len=4096, max_num_seqs=4)
    pipeline = load_pipeline(Config(model=ModelOptions(model=str(model_path())), engine=options))
    with running(pipeline, keep_alive_s=0.5) as url:
        yield pipeline, url
    pipeline.close()


def streamed_text(url: str, path: str, body: dict[str, object]) -> tuple[str, dict[str, int]]:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    lines = httpx.post(url + path, json={**body, **options}, timeout=60).text.split("\n\n")
    chunks = [orjson.loads(line[6:]) for line in lines if line.startswith("data: {")]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in choices), chunks[-1][
        "usage"
    ]


def test_a_stream_and_an_answer_in_one_piece_agree(served: tuple[Pipeline, str]):
    _, url = served
    whole = httpx.post(url + CHAT, json=QUESTION, timeout=60).json()
    text, usage = streamed_text(url, CHAT, QUESTION)
    assert text == whole["choices"][0]["message"]["content"] and text.strip()
    assert usage["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 0, "the second time most of the prompt is cached"


def test_a_prompt_as_text_and_as_ids_says_the_same(served: tuple[Pipeline, str]):
    pipeline, url = served
    ids = pipeline.tokenizer.encode("The capital of France is", add_special_tokens=True)
    body = {"temperature": 0, "max_tokens": 8}
    as_text, _ = streamed_text(url, TEXT, {"prompt": "The capital of France is", **body})
    as_ids, _ = streamed_text(url, TEXT, {"prompt": ids, **body})
    assert as_text == as_ids and "Paris" in as_text


def test_echoed_logprobs_cover_prompt_and_answer(served: tuple[Pipeline, str]):
    _, url = served
    body = {"prompt": "One two three", "echo": True, "logprobs": 2, "max_tokens": 3, "temperature": 0}
    choice = httpx.post(url + TEXT, json=body, timeout=60).json()["choices"][0]
    scored = choice["logprobs"]
    assert "".join(scored["tokens"]) == choice["text"]
    places = zip(scored["text_offset"], scored["tokens"], strict=True)
    assert all(choice["text"][at:].startswith(token) for at, token in places)
    assert scored["token_logprobs"][0] is None and all(value <= 0 for value in scored["token_logprobs"][1:])


def test_a_client_that_leaves_during_a_long_prompt_frees_the_engine(served: tuple[Pipeline, str]):
    pipeline, url = served
    client = raw_post(url, TEXT, {"prompt": "so much to read " * 900, "max_tokens": 50, "stream": True})
    assert eventually(lambda: pipeline.engine.stats().num_running == 1)
    client.close()
    left_s = time.monotonic()
    assert eventually(lambda: pipeline.engine.stats().num_running == 0)
    assert time.monotonic() - left_s < 2


def test_health_answers_quickly_beside_a_body_of_20_mb(served: tuple[Pipeline, str]):
    _, url = served
    content = orjson.dumps({"messages": [{"role": "user", "content": "a few words " * (1_750_000)}]})
    assert any(slowest_health_s(url, content) < 0.1 for _ in range(3))
