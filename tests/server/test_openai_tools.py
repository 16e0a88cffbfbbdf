"""The official openai client: a tool loop through its accumulating stream, and its parsed answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.conftest import running
from tests.support.pipelines import make_pipeline

openai = pytest.importorskip("openai")
pydantic = pytest.importorskip("pydantic")

pytestmark = pytest.mark.http

TURN = "<|im_end|>\n<|im_start|>assistant\n"
ANSWERS = {
    f"Make a.txt{TURN}": '{"name": "put", "arguments": {"path": "a.txt", "text": "Zürich 東京 🙂"}}<|im_end|>',
    f"wrote a.txt{TURN}": "Done.<|im_end|>",
    f"Which?{TURN}": "{}<|im_end|>",
}
PUT = {
    "type": "function",
    "function": {
        "name": "put",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
            "required": ["path", "text"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    pipeline = make_pipeline(ANSWERS, max_model_len=2048)
    with running(pipeline) as url:
        yield openai.OpenAI(base_url=url + "/v1", api_key="x", max_retries=0)
    pipeline.close()


def test_a_loop_of_two_turns_over_the_accumulating_stream(client: openai.OpenAI):
    messages: list[Any] = [{"role": "user", "content": "Make a.txt"}]
    options: dict[str, Any] = {"model": "any", "temperature": 0, "tools": [PUT]}
    with client.chat.completions.stream(messages=messages, **options) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls" and len(done) == 1
    (call,) = choice.message.tool_calls
    assert call.function.parsed_arguments == {"path": "a.txt", "text": "Zürich 東京 🙂"}
    assert "東京" in call.function.arguments, "characters, not escapes"

    messages.append(choice.message.model_dump(exclude_none=True))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "wrote a.txt"})
    with client.chat.completions.stream(messages=messages, **options) as stream:
        final = stream.get_final_completion().choices[0]
    assert (final.message.content, final.finish_reason) == ("Done.", "stop")
    assert not final.message.tool_calls


def test_an_answer_is_parsed_into_the_model_that_was_asked_for(client: openai.OpenAI):
    class Pick(pydantic.BaseModel):
        pick: bool

    parsed = client.chat.completions.parse(
        model="any",
        messages=[{"role": "user", "content": "Which?"}],
        response_format=Pick,
        temperature=0,
        max_tokens=100,
    )
    assert isinstance(parsed.choices[0].message.parsed, Pick)


def test_an_unpaired_result_is_the_client_s_error(client: openai.OpenAI):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model="any", messages=[{"role": "tool", "tool_call_id": "c9", "content": "x"}]
        )
    assert caught.value.param == "messages[0].tool_call_id"
