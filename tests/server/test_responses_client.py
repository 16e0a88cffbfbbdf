"""The official openai client's responses API against a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.conftest import running
from tests.server.test_responses import ANSWERS
from tests.support.pipelines import make_pipeline

openai = pytest.importorskip("openai")

pytestmark = pytest.mark.http


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    pipeline = make_pipeline(ANSWERS)
    with running(pipeline, keep_alive_s=0.02) as url:
        yield openai.OpenAI(base_url=url + "/v1", api_key="sk-test", max_retries=0)
    pipeline.close()


def test_create(client: openai.OpenAI):
    response = client.responses.create(model="any", input="Say hi", temperature=0)
    assert (response.output_text, response.status) == ("Hello there!", "completed")
    assert response.usage.output_tokens == 13


def test_the_stream_as_the_client_puts_it_together(client: openai.OpenAI):
    with client.responses.stream(model="any", input="Say hi", temperature=0, top_logprobs=1) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == "Hello there!"
    texts = [event.snapshot for event in events if event.type == "response.output_text.delta"]
    assert texts[-1] == "Hello there!" and texts[0] == "H"
    assert len(final.output[0].content[0].logprobs) == 12


def test_raw_events(client: openai.OpenAI):
    events = list(client.responses.create(model="any", input="Say hi", temperature=0, stream=True))
    assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "Hello there!"


def test_coming_back(client: openai.OpenAI):
    first = client.responses.create(model="any", input="Say hi", temperature=0)
    assert client.responses.retrieve(first.id).output_text == "Hello there!"
    second = client.responses.create(model="any", input="Again", previous_response_id=first.id, temperature=0)
    assert second.output_text == "Hi again."
    items = list(client.responses.input_items.list(second.id, order="asc"))
    assert [item.role for item in items] == ["user", "assistant", "user"]
    with pytest.raises(openai.BadRequestError, match="in progress"):
        client.responses.cancel(first.id)
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def test_what_output_holds_can_be_sent_back(client: openai.OpenAI):
    first = client.responses.create(model="any", input="Say hi", temperature=0, store=False)
    items = [{"role": "user", "content": "Say hi"}, *first.output, {"role": "user", "content": "Again"}]
    second = client.responses.create(model="any", input=items, temperature=0, store=False)
    assert second.output_text == "Hi again."


def test_errors_arrive_as_the_client_s_own(client: openai.OpenAI):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="any", input=[{"role": "banana", "content": "x"}])
    assert caught.value.param == "input[0].role"
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="any", input="x" * 700, stream=True)
    assert caught.value.code == "context_length_exceeded"
