"""Tools, thinking and structured output through the Python API, with a scripted model."""

from __future__ import annotations

import json

import pytest

from edgewise import LLM
from edgewise.core.errors import InvalidRequestError
from tests.support.pipelines import make_pipeline

GREEDY = {"temperature": 0.0, "max_tokens": 200}
CALL = '<tool_call>\n{"name": "put", "arguments": {"path": "a.txt", "size": 3}}\n</tool_call>'
PUT = {
    "type": "function",
    "function": {
        "name": "put",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "size": {"type": "integer"}},
            "required": ["path", "size"],
            "additionalProperties": False,
        },
    },
}
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def make_llm():
    made = []

    def make(answer: str) -> LLM:
        made.append(
            LLM.from_pipeline(make_pipeline({"assistant\n": answer}, max_model_len=2048, num_blocks=512))
        )
        return made[-1]

    yield make
    for llm in made:
        llm.close()


def test_a_call_comes_back_as_a_call(make_llm):
    (output,) = make_llm("I write it." + CALL + "<|im_end|>").chat(HELLO, GREEDY, tools=[PUT])
    (call,) = output.tool_calls
    assert (call.name, json.loads(str(call.arguments))) == ("put", {"path": "a.txt", "size": 3})
    assert (output.text, output.finish_reason) == ("I write it.", "tool_calls")


def test_a_call_without_its_markers_is_one(make_llm):
    answer = '```json\n{"name": "put", "arguments": {"path": "b", "size": 1}}\n```<|im_end|>'
    (output,) = make_llm(answer).chat(HELLO, GREEDY, tools=[PUT])
    assert [call.name for call in output.tool_calls] == ["put"]
    assert output.text == ""


def test_a_stream_gives_the_call_when_it_is_complete(make_llm):
    deltas = list(make_llm(CALL + "<|im_end|>").generate_stream(HELLO, GREEDY, tools=[PUT]))
    calls = [delta.tool_call for delta in deltas if delta.tool_call is not None]
    assert [call.name for call in calls] == ["put"]
    assert not any(delta.text.strip() for delta in deltas)
    assert deltas[-1].finish_reason == "tool_calls"


def test_a_required_call_is_made_whatever_the_model_wants_to_say(make_llm):
    (output,) = make_llm("I would rather talk.<|im_end|>").chat(
        HELLO, GREEDY, tools=[PUT], tool_choice="required"
    )
    if output.finish_reason != "length":  # the scripted model may fill a string for ever
        assert output.tool_calls
    assert not output.text.strip()


def test_no_tools_no_calls(make_llm):
    (output,) = make_llm(CALL + "<|im_end|>").chat(HELLO, GREEDY)
    assert output.text == CALL
    assert output.tool_calls == ()


def test_a_schema_binds_a_chat_and_a_raw_prompt(make_llm):
    schema = {
        "type": "object",
        "properties": {"n": {"enum": [1, 2]}},
        "required": ["n"],
        "additionalProperties": False,
    }
    llm = make_llm("no json at all")
    response_format = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    (chat,) = llm.chat(HELLO, GREEDY, response_format=response_format)
    assert json.loads(chat.text)["n"] in (1, 2)
    (raw,) = llm.generate("assistant\n", GREEDY, structured_outputs={"json": schema})
    assert json.loads(raw.text)["n"] in (1, 2)


def test_unknown_fields_and_impossible_choices_are_refused(make_llm):
    llm = make_llm("x")
    with pytest.raises(InvalidRequestError, match="tol_choice"):
        llm.chat(HELLO, GREEDY, tol_choice="auto")
    with pytest.raises(InvalidRequestError, match="tool_choice"):
        llm.chat(HELLO, GREEDY, tool_choice="required")
