"""Conversations as agents replay them: calls, results, thinking and media in every shape."""

from __future__ import annotations

from typing import Any

import pytest

from edgewise.core.chat import MediaPart, Message
from edgewise.core.errors import InvalidRequestError
from edgewise.protocols.chat import parse_request

USER = {"role": "user", "content": "hi"}


def read(*messages: Any) -> tuple[Message, ...]:
    """The parsed messages; the last one is a user's, so that none is taken for a prefill."""
    return parse_request({"messages": [*messages, USER]}).chat.messages[:-1]


def call(arguments: Any, call_id: Any = "c1", name: str = "put") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def said(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", **fields}


@pytest.mark.parametrize("arguments", ['{"a": 1}', {"a": 1}, "", None, '{"cmd": "ls', "not json", {}])
def test_arguments_are_kept_as_they_came(arguments: Any):
    (message,) = read(said(content=None, tool_calls=[call(arguments)]))
    assert message.tool_calls[0].arguments == arguments
    assert message.parts == ()


def test_missing_arguments_are_none():
    (message,) = read(said(tool_calls=[{"id": "c1", "function": {"name": "f"}}]))
    assert message.tool_calls[0].arguments is None


def test_the_older_function_call_is_a_call_and_its_result_finds_it():
    message, result = read(
        said(content=None, function_call={"name": "put", "arguments": "{}"}),
        {"role": "function", "name": "put", "content": "ok"},
    )
    assert (message.tool_calls[0].name, message.tool_calls[0].arguments) == ("put", "{}")
    assert result.role == "tool" and result.tool_call_id == message.tool_calls[0].id


def test_a_freeform_call_is_replayed_as_the_text_it_was():
    (message,) = read(
        said(tool_calls=[{"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "*** x"}}])
    )
    assert message.tool_calls[0].arguments == {"input": "*** x"}


def test_calls_without_ids_get_the_same_ids_every_turn_and_results_answer_them_in_order():
    turns = [
        USER,
        said(tool_calls=[call("{}", None), call("{}", "", "get")]),
        {"role": "tool", "content": "one"},
        {"role": "tool", "content": "two", "tool_name": "get"},
    ]
    first = read(*turns)
    assert first == read(*turns), "a prompt that changes from turn to turn voids the cache"
    ids = [made.id for made in first[1].tool_calls]
    assert len(set(ids)) == 2 and all(ids)
    assert [message.tool_call_id for message in first[2:]] == ids


def test_a_result_without_an_id_answers_by_name():
    messages = read(
        said(tool_calls=[call("{}", "a"), call("{}", "b", "get")]),
        {"role": "tool", "name": "get", "content": "x"},
    )
    assert messages[1].tool_call_id == "b"


@pytest.mark.parametrize(
    "results",
    [
        [{"role": "tool", "tool_call_id": "other", "content": "x"}],
        [{"role": "tool", "content": "x"}, {"role": "tool", "content": "y"}],
        [{"role": "function", "name": "unknown", "content": "x"}],
    ],
)
def test_a_result_that_answers_no_call_is_refused(results: list[Any]):
    with pytest.raises(InvalidRequestError) as caught:
        read(USER, said(tool_calls=[call("{}")]), *results)
    assert caught.value.param == f"messages[{1 + len(results)}].tool_call_id"


def test_a_late_result_of_an_earlier_turn_is_accepted():
    messages = read(
        said(tool_calls=[call("{}", "a"), call("{}", "b")]),
        {"role": "tool", "tool_call_id": "b", "content": "x"},
        said(tool_calls=[call("{}", "c")]),
        {"role": "tool", "tool_call_id": "a", "content": "y"},
    )
    assert [message.tool_call_id for message in messages] == [None, "b", None, "a"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", ""),
        ("ok", "ok"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, "b"], "a\nb"),
        ([{"text": "no type"}], "no type"),
    ],
)
def test_results_as_text_or_parts(content: Any, text: str):
    messages = read(said(tool_calls=[call("{}")]), {"role": "tool", "tool_call_id": "c1", "content": content})
    assert messages[1].text == text


def test_an_empty_list_of_calls_and_null_fields_are_nothing():
    (message,) = read(
        said(content="x", tool_calls=[], function_call=None, name=None, refusal=None, audio=None)
    )
    assert message.tool_calls == () and message.name is None and message.text == "x"


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning": "hm"},
        {"reasoning_content": "hm"},
        {"thinking": "hm"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "x"}]},
        {"content": [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "x"}]},
    ],
)
def test_thinking_of_earlier_turns_is_reasoning_and_never_text(fields: dict[str, Any]):
    (message,) = read(said(**{"content": "x", **fields}))
    assert message.reasoning == "hm" and message.text == "x"


def test_encrypted_thinking_is_left_out():
    (message,) = read(
        said(content=[{"type": "redacted_thinking", "data": "AAAA"}, {"type": "text", "text": "x"}])
    )
    assert message.reasoning is None and message.text == "x"


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "image_url", "image_url": {"url": "http://169.254.169.254/x"}}, "image"),
        ({"type": "image_url", "image_url": {"url": "file:///etc/hostname"}}, "image"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,@@@"}}, "image"),
        ({"type": "input_image", "image_url": "http://[::ffff:127.0.0.1]/"}, "image"),
        ({"type": "image", "source": {"type": "base64", "data": "QUJD"}}, "image"),
        ({"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}}, "audio"),
        ({"type": "audio_url", "audio_url": {"url": "../../x"}}, "audio"),
        ({"type": "video_url", "video_url": {"url": "x"}}, "video"),
        ({"type": "file", "file": {"file_data": "QUJD"}}, "document"),
    ],
)
def test_media_stay_what_they_are_and_never_become_text(part: dict[str, Any], kind: str):
    (message,) = read({"role": "user", "content": [{"type": "text", "text": "see"}, part]})
    assert message.text == "see"
    assert message.parts[1] == MediaPart(kind, part, "messages[0].content[1]")  # type: ignore[arg-type]


def test_a_picture_that_a_tool_returned_becomes_a_note():
    shot = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    messages = read(
        said(tool_calls=[call("{}")]),
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "shot"}, shot]},
    )
    assert messages[1].text == "shot\n[an image was returned here; this model reads text only]"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (said(tool_calls={}), "messages[0].tool_calls"),
        (said(tool_calls=["f"]), "messages[0].tool_calls[0]"),
        (said(tool_calls=[{"type": "custom"}]), "messages[0].tool_calls[0].custom"),
        (said(tool_calls=[call([1])]), "messages[0].tool_calls[0].function.arguments"),
        (said(function_call={}), "messages[0].function_call.name"),
        (said(content="x", reasoning=5), "messages[0].reasoning"),
        ({"role": "user", "content": "x", "function_call": {"name": "f"}}, "messages[0].tool_calls"),
    ],
)
def test_refusals_name_the_field(message: Any, param: str):
    with pytest.raises(InvalidRequestError) as caught:
        read(message)
    assert caught.value.param == param
