"""The official openai client against a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.conftest import ANSWERS, running
from tests.support.pipelines import make_pipeline

openai = pytest.importorskip("openai")

pytestmark = pytest.mark.http


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    pipeline = make_pipeline(ANSWERS)
    with running(pipeline, api_keys=("sk-test",)) as url:
        yield openai.OpenAI(base_url=url + "/v1", api_key="sk-test", max_retries=0)
    pipeline.close()


HI = [{"role": "user", "content": "Say hi"}]


def test_chat(client: openai.OpenAI):
    answer = client.chat.completions.create(
        model="any", messages=HI, temperature=0, logprobs=True, top_logprobs=2
    )
    assert answer.choices[0].message.content == "Hello there!"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 13
    assert answer.choices[0].logprobs.content[0].token == "H"


def test_chat_streamed_with_usage(client: openai.OpenAI):
    options = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(
            model="any", messages=HI, temperature=0, stream=True, stream_options=options
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello there!"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage.completion_tokens == 13 and chunks[-1].choices == []


def test_completions(client: openai.OpenAI):
    answer = client.completions.create(model="any", prompt=["Once upon", "One"], temperature=0)
    assert [choice.text for choice in answer.choices] == [" a time.", " two three"]
    stream = client.completions.create(model="any", prompt="One", temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == " two three"


def test_models(client: openai.OpenAI):
    assert [model.id for model in client.models.list()] == ["scripted"]
    assert client.models.retrieve("scripted").max_model_len == 512


def test_errors_arrive_as_the_client_s_own(client: openai.OpenAI):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="any", messages=[{"role": "banana", "content": ""}])
    assert caught.value.param == "messages[0].role"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "x" * 700}], stream=True
        )
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")


def test_an_error_inside_a_stream_is_raised(client: openai.OpenAI):
    def broken(ids: object, logits: object) -> None:
        raise RuntimeError

    pipeline = make_pipeline(ANSWERS, model={"failures": {2: RuntimeError("broken memory")}})
    with running(pipeline) as url:
        other = openai.OpenAI(base_url=url + "/v1", api_key="x", max_retries=0)
        with pytest.raises(openai.APIError, match="broken memory"):
            list(other.chat.completions.create(model="any", messages=HI, stream=True))
    pipeline.close()
