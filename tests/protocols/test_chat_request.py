"""Chat requests: what is read, what is refused, and that every refusal names its field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.core.errors import InvalidRequestError
from edgewise.protocols.chat import parse_request
from tests.support.examples import examples

USER = {"role": "user", "content": "hi"}


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages) or [USER], **fields}


@pytest.mark.parametrize(
    ("request_body", "param"),
    [
        ([], None),
        ("text", None),
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": {"role": "user"}}, "messages"),
        (body("hi"), "messages[0]"),
        (body(USER, {"role": "banana", "content": "x"}), "messages[1].role"),
        (body({"content": "x"}), "messages[0].role"),
        (body({"role": 3, "content": "x"}), "messages[0].role"),
        (body({"role": "user"}), "messages[0].content"),
        (body({"role": "user", "content": 5}), "messages[0].content"),
        (body({"role": "user", "content": [{"type": "text"}]}), "messages[0].content[0].text"),
        (body({"role": "user", "content": [{"type": "text", "text": 1}]}), "messages[0].content[0].text"),
        (body({"role": "user", "content": [{"type": "hologram"}]}), "messages[0].content[0].type"),
        (
            body({"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}),
            "messages[0].tool_calls",
        ),
        (body({"role": "assistant", "tool_calls": [{"id": "a"}]}), "messages[0].tool_calls[0].function"),
        (
            body({"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}),
            "messages[0].tool_calls[0].function.name",
        ),
        (
            body({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]}),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (body(temperature=-1), "temperature"),
        (body(temperature="warm"), "temperature"),
        (body(temperature=True), "temperature"),
        (body(temperature=float("nan")), "temperature"),
        (body(temperature=float("inf")), "temperature"),
        (body(top_p=0), "top_p"),
        (body(top_p=1.5), "top_p"),
        (body(top_k=-2), "top_k"),
        (body(min_p=2), "min_p"),
        (body(n=0), "n"),
        (body(n=1.5), "n"),
        (body(n=129), "n"),
        (body(seed="x"), "seed"),
        (body(presence_penalty=3), "presence_penalty"),
        (body(repetition_penalty=0), "repetition_penalty"),
        (body(max_tokens=0), "max_tokens"),
        (body(max_tokens=-5), "max_tokens"),
        (body(max_completion_tokens="many"), "max_completion_tokens"),
        (body(min_tokens=9, max_tokens=3), "min_tokens"),
        (body(stop=""), "stop"),
        (body(stop=["ok", ""]), "stop"),
        (body(stop=[1]), "stop[0]"),
        (body(stop=["x"] * 65), "stop"),
        (body(stop_token_ids=[1, -1]), "stop_token_ids[1]"),
        (body(allowed_token_ids=[]), "allowed_token_ids"),
        (body(logit_bias={"a": 1}), "logit_bias.a"),
        (body(logit_bias={"1": "x"}), "logit_bias.1"),
        (body(logit_bias=[1]), "logit_bias"),
        (body(logprobs=3), "logprobs"),
        (body(top_logprobs=2), "top_logprobs"),
        (body(logprobs=True, top_logprobs=1000), "top_logprobs"),
        (body(best_of=1, n=2), "best_of"),
        (body(best_of=3, n=2, stream=True), "best_of"),
        (body(stream="yes"), "stream"),
        (body(stream_options={"include_usage": True}), "stream_options"),
        (body(stream=True, stream_options={"include_usage": 1}), "stream_options.include_usage"),
        (body(stream=True, prompt_logprobs=1), "prompt_logprobs"),
        (body(stream_interval=0), "stream_interval"),
        (body(tool_choice="required"), "tool_choice"),
        (body(tool_choice={"type": "function", "function": {"name": "f"}}), "tool_choice.function.name"),
        (body(tool_choice="sometimes"), "tool_choice"),
        (
            body(response_format={"type": "json_schema", "json_schema": {}}),
            "response_format.json_schema.schema",
        ),
        (body(response_format={"type": "poem"}), "response_format.type"),
        (body(response_format={}), "response_format.type"),
        (body(use_beam_search=True), "use_beam_search"),
        (body(chat_template="{{ 1 }}"), "chat_template"),
        (body(chat_template_kwargs={"chat_template": "x"}), "chat_template_kwargs.chat_template"),
        (body(chat_template_kwargs={"messages": []}), "chat_template_kwargs.messages"),
        (body(modalities=["text", "audio"]), "modalities[1]"),
        (body(cache_salt="x" * 1025), "cache_salt"),
        (body(priority="high"), "priority"),
        (body(model=5), "model"),
        (body(continue_final_message=True), "messages[0].role"),
        (
            body(
                {"role": "assistant", "content": "a"}, continue_final_message=True, add_generation_prompt=True
            ),
            "continue_final_message",
        ),
    ],
)
def test_refusals_name_the_field(request_body: Any, param: str | None):
    with pytest.raises(InvalidRequestError) as caught:
        parse_request(request_body)
    assert caught.value.param == param
    assert (param or "request body").split(".")[-1].split("[")[0] in caught.value.message


def test_an_unknown_role_is_named_with_its_place_and_value():
    with pytest.raises(InvalidRequestError, match=r'messages\[1\]\.role must be one of .* got "banana"'):
        parse_request(body(USER, {"role": "banana", "content": "x"}))


def test_only_given_sampling_fields_are_passed_on():
    parsed = parse_request(
        body(temperature=0, stop="END", top_k=-1, logit_bias={"7": 200}, seed=3, min_p=None)
    )
    assert parsed.chat.sampling == {
        "temperature": 0.0,
        "stop": ["END"],
        "top_k": -1,
        "logit_bias": {7: 200.0},
        "seed": 3,
    }


def test_the_newer_name_of_max_tokens_wins_and_minus_one_means_not_given():
    assert parse_request(body(max_tokens=5, max_completion_tokens=7)).chat.sampling["max_tokens"] == 7
    assert parse_request(body(max_tokens=5)).chat.sampling["max_tokens"] == 5
    assert "max_tokens" not in parse_request(body(max_tokens=-1)).chat.sampling
    assert parse_request(body(max_tokens=5, max_completion_tokens=-1)).chat.sampling["max_tokens"] == 5


def test_content_parts_become_text_joined_by_newlines():
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, "c"]
    assert parse_request(body({"role": "user", "content": parts})).chat.messages[0].text == "a\nb\nc"


def test_history_with_calls_and_reasoning_is_read():
    messages = parse_request(
        body(
            USER,
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "put", "arguments": '{"a":1}'}},
                    {"id": "c2", "function": {"name": "get", "arguments": {"a": 1}}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "ok"},
            {"role": "function", "name": "get", "content": "ok"},
        )
    ).chat.messages
    assert [call.arguments for call in messages[1].tool_calls] == ['{"a":1}', {"a": 1}]
    assert messages[1].reasoning == "hm"
    assert (messages[2].role, messages[2].tool_call_id, messages[3].role) == ("tool", "c1", "tool")


@pytest.mark.parametrize(
    ("messages", "flags", "expected"),
    [
        ([USER], {}, (1, True, False)),
        ([USER, {"role": "assistant", "content": "Sure"}], {}, (2, False, True)),
        ([USER, {"role": "assistant", "content": ""}], {}, (1, True, False)),
        ([USER, {"role": "assistant", "content": "a"}], {"add_generation_prompt": True}, (2, True, False)),
        ([USER, {"role": "assistant", "content": "a"}], {"add_generation_prompt": False}, (2, False, False)),
        ([USER, {"role": "assistant", "content": "a"}], {"continue_final_message": True}, (2, False, True)),
        ([USER, {"role": "assistant", "content": "a"}], {"continue_final_message": False}, (2, True, False)),
        ([USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}], {}, (2, True, False)),
    ],
)
def test_a_trailing_assistant_turn_is_continued_unless_told_otherwise(
    messages: Any, flags: Any, expected: Any
):
    chat = parse_request(body(*messages, **flags)).chat
    assert (len(chat.messages), chat.add_generation_prompt, chat.continue_final_message) == expected


def test_fields_without_effect_are_listed_and_null_is_not_given():
    parsed = parse_request(
        body(user="me", store=False, metadata={}, logit_bias=None, verbosity=None, top_p=0.5)
    )
    assert sorted(parsed.chat.ignored_fields) == ["metadata", "store", "user"]


def test_logprobs_ask_the_engine_for_as_many_alternatives_as_are_shown():
    assert parse_request(body(logprobs=True, top_logprobs=3)).chat.sampling["logprobs"] == 3
    assert parse_request(body(logprobs=True)).chat.sampling["logprobs"] == 0
    assert parse_request(body(logprobs=True, top_logprobs=-1)).chat.sampling["logprobs"] == -1
    assert "logprobs" not in parse_request(body(logprobs=False, top_logprobs=0)).chat.sampling


def test_best_of_makes_more_choices_than_are_shown_and_ranks_them_by_logprob():
    parsed = parse_request(body(n=2, best_of=4))
    assert (parsed.chat.sampling["n"], parsed.reply.num_choices, parsed.reply.best_of) == (4, 2, 4)
    assert parsed.chat.sampling["logprobs"] == 0 and parsed.reply.logprobs is None


def test_template_arguments_leave_out_what_is_not_set():
    kwargs = {"enable_thinking": False, "a": None, "b": "auto", "c": 1}
    assert parse_request(body(chat_template_kwargs=kwargs)).chat.template_kwargs == {
        "enable_thinking": False,
        "c": 1,
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
field_names = st.sampled_from(
    [
        "messages",
        "model",
        "temperature",
        "top_p",
        "n",
        "stop",
        "stop_token_ids",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "stream",
        "stream_options",
        "tools",
        "tool_choice",
        "response_format",
        "chat_template_kwargs",
        "best_of",
        "max_tokens",
        "seed",
        "documents",
        "modalities",
        "bad_words",
    ]
)


@settings(max_examples=examples(100), deadline=None)
@given(st.dictionaries(field_names, json_values, max_size=4), st.booleans())
def test_any_json_is_parsed_or_refused_and_never_crashes(fields: dict[str, Any], with_messages: bool):
    request_body = {"messages": [USER], **fields} if with_messages else fields
    try:
        parse_request(request_body)
    except InvalidRequestError as error:
        assert error.param


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(json_values, min_size=1, max_size=3))
def test_any_list_of_messages_is_parsed_or_refused_naming_one(messages: list[Any]):
    try:
        parse_request({"messages": messages})
    except InvalidRequestError as error:
        assert error.param is not None and error.param.startswith("messages")


def test_a_template_of_the_request_s_own_is_read_only_where_it_is_trusted():
    asked = body(chat_template="{{ messages[0].content }}")
    assert parse_request(asked, trust_template=True).chat.chat_template == "{{ messages[0].content }}"
    with pytest.raises(InvalidRequestError, match=r"chat_template .* not allowed"):
        parse_request(asked)
    with pytest.raises(InvalidRequestError, match="chat_template must be at most"):
        parse_request(body(chat_template="x" * (1 << 19)), trust_template=True)
    assert parse_request(body(chat_template="")).chat.chat_template is None
