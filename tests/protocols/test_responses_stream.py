"""The event life cycle of /v1/responses: whole, in order, and adding up to the object of an answer in one piece."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta, PartEnd, PartStart
from edgewise.core.errors import ContextLengthError, EngineDeadError, OverloadedError
from edgewise.core.requests import TokenLogprob, Usage
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.reply import Reply, ReplyHead
from edgewise.protocols.responses import ResponseOptions, parse_request
from edgewise.protocols.responses_input import carry_reasoning
from edgewise.protocols.responses_stream import ResponsesStreamEncoder, encode_response
from tests.support.byte_tokenizer import ByteTokenizer
from tests.support.examples import examples

HEAD = ReplyHead("resp_abc", 1_700_000_000, "scripted")
USAGE = Usage(prompt_tokens=20, completion_tokens=9, cached_tokens=16, reasoning_tokens=3)
TOOLS = [
    {"type": "function", "name": "shell", "parameters": {"type": "object"}, "strict": False},
    {
        "type": "namespace",
        "name": "mcp__notes",
        "description": "Notes.",
        "tools": [{"type": "function", "name": "add", "parameters": {"type": "object"}}],
    },
    {"type": "custom", "name": "apply_patch"},
]
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def options(**fields: Any) -> ResponseOptions:
    return parse_request({"input": "hi", "tools": TOOLS, "stream": True, **fields}).reply


def encoder(**fields: Any) -> ResponsesStreamEncoder:
    return ResponsesStreamEncoder(HEAD, options(**fields), LogprobWriter(ByteTokenizer()))


def read(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream; each must be named after its type and be what OpenAI's package expects."""
    events = []
    for block in filter(None, data.decode().split("\n\n")):
        name, payload = block.split("\n")
        event = json.loads(payload.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        EVENTS.validate_python(event)
        events.append(event)
    return events


def part(kind: Any, *deltas: str, name: str = "", call_id: str = "") -> list[ChatEvent]:
    return [PartStart(0, kind, call_id, name), *(PartDelta(0, text, (1,)) for text in deltas), PartEnd(0)]


def streamed(*parts: list[ChatEvent], reason: str = "stop", **fields: Any) -> list[dict[str, Any]]:
    writer = encoder(**fields)
    events = [event for one in parts for event in one] + [Finish(0, reason, USAGE)]
    data = writer.opening() + b"".join(writer.encode([event]) for event in events) + writer.closing()
    return read(data)


def kinds(events: Iterable[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


TEXT = part("text", "He", "llo")
THINKING = part("reasoning", "hm", " ok")
CALL = part("tool_call", '{"cmd"', ':"ls"}', name="shell", call_id="call_1")
NOTE = part("tool_call", "{}", name="mcp__notes__add", call_id="call_2")
PATCH = part("custom_call", "*** Begin", " Patch", name="apply_patch", call_id="call_3")


def test_the_life_of_a_text():
    events = streamed(TEXT)
    assert kinds(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    last = events[-1]["response"]
    assert last["output"] == [events[-2]["item"]]
    assert last["output"][0] == {
        "id": "msg_abc_0",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}],
    }
    assert last["usage"] == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 0},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 29,
    }
    assert (last["status"], last["error"], last["incomplete_details"]) == ("completed", None, None)


def test_thinking_text_and_calls_in_their_order():
    events = streamed(THINKING, TEXT, CALL, NOTE, PATCH, reason="tool_calls")
    items = events[-1]["response"]["output"]
    assert [item["type"] for item in items] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "custom_tool_call",
    ]
    assert items[0]["content"] == [{"type": "reasoning_text", "text": "hm ok"}] and items[0]["summary"] == []
    assert (items[2]["call_id"], items[2]["name"], items[2]["arguments"]) == (
        "call_1",
        "shell",
        '{"cmd":"ls"}',
    )
    assert "namespace" not in items[2]
    assert (items[3]["namespace"], items[3]["name"]) == ("mcp__notes", "add")
    assert (items[4]["name"], items[4]["input"]) == ("apply_patch", "*** Begin Patch")
    assert kinds(events).count("output_item.done") == 5
    calls = [event for event in events if event.get("output_index") == 2]
    assert kinds(calls) == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert calls[0]["item"]["arguments"] == "" and calls[3]["arguments"] == '{"cmd":"ls"}'
    assert {event["item_id"] for event in calls[1:4]} == {calls[0]["item"]["id"]}


def test_summaries_where_they_are_asked_for():
    events = streamed(THINKING, reasoning={"effort": "low", "summary": "auto"})
    assert kinds(events)[2:-1] == [
        "output_item.added",
        "content_part.added",
        "reasoning_summary_part.added",
        "reasoning_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    assert events[-1]["response"]["output"][0]["summary"] == [{"type": "summary_text", "text": "hm ok"}]


def test_reasoning_goes_along_where_it_is_asked_for():
    item = streamed(THINKING, include=["reasoning.encrypted_content"])[-1]["response"]["output"][0]
    assert item["encrypted_content"] == carry_reasoning("hm ok")
    back = parse_request(
        {"input": [{"type": "reasoning", "summary": [], **{"encrypted_content": item["encrypted_content"]}}]}
    )
    assert back.chat.messages[0].reasoning == "hm ok"


def test_a_cut_text_is_incomplete():
    events = streamed(TEXT, reason="length")
    assert kinds(events)[-2:] == ["output_item.done", "incomplete"]
    last = events[-1]["response"]
    assert (last["status"], last["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert last["output"][0]["status"] == "incomplete"


def test_a_cut_call_is_never_reported_done():
    events = streamed(
        CALL, part("tool_call", '{"cmd":"rm /tmp/a"}', name="shell", call_id="c2"), reason="length"
    )
    done = [event["item"]["call_id"] for event in events if event["type"] == "response.output_item.done"]
    assert done == ["call_1"]
    assert [item["status"] for item in events[-1]["response"]["output"]] == ["completed", "incomplete"]


def test_nothing_at_all():
    events = streamed()
    assert kinds(events) == ["created", "in_progress", "completed"]
    assert events[-1]["response"]["output"] == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineDeadError("gone"), "server_error"),
        (ValueError("secret"), "server_error"),
        (OverloadedError("full"), "rate_limit_exceeded"),
        (ContextLengthError(prompt_tokens=9, max_model_len=8), "context_length_exceeded"),
    ],
)
def test_a_failure_ends_the_stream(error: Exception, code: str):
    writer = encoder()
    data = writer.opening() + writer.encode([PartStart(0, "text", ""), PartDelta(0, "He")])
    data += writer.encode([Failed(error)])
    assert writer.keepalive() == b"" and writer.failure(error) == b"", "nothing follows the end"
    last = [json.loads(block.split("\ndata: ")[1]) for block in filter(None, data.decode().split("\n\n"))][-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"]["code"] == code and "secret" not in str(last)
    assert last["response"]["output"][0]["status"] == "incomplete"
    assert last["response"]["output"][0]["content"][0]["text"] == "He"


def test_codex_is_told_when_to_ask_again():
    """It looks for this pattern in the message of a failed response."""
    data = encoder().encode([Failed(OverloadedError("The queue is full.", retry_after_s=3))])
    message = json.loads(data.decode().rstrip().split("\ndata: ")[-1])["response"]["error"]["message"]
    found = re.search(r"(?i)try again in\s*(\d+(?:\.\d+)?)\s*(s|ms|seconds?)", message)
    assert found is not None and found.groups() == ("3", "s")
    assert message.startswith("The queue is full. ")


def test_a_cancelled_response():
    last = streamed(TEXT, reason="cancelled")[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")


def test_signs_of_life_are_numbered_and_start_nothing_anew():
    writer = encoder()
    data = writer.opening() + writer.keepalive() + writer.encode(TEXT[:2]) + writer.keepalive()
    events = read(data + writer.encode([*TEXT[2:], Finish(0, "stop", USAGE)]))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    alive = [event for event in events if event["type"] == "response.in_progress"]
    assert len(alive) == 3 and all(event["response"]["output"] == [] for event in alive)


def test_what_the_request_said_is_repeated():
    fields = {"instructions": "be brief", "metadata": {"a": "b"}, "tool_choice": "none", "temperature": 0.5}
    for event in streamed(TEXT, **fields, max_output_tokens=99, previous_response_id=None):
        if (response := event.get("response")) is not None:
            assert {**response, **fields} == response and response["max_output_tokens"] == 99
            assert response["tools"] == TOOLS and response["text"] == {"format": {"type": "text"}}


def test_the_end_is_told_once():
    ended: list[dict[str, Any]] = []
    writer = ResponsesStreamEncoder(HEAD, options(), LogprobWriter(ByteTokenizer()), on_end=ended.append)
    writer.opening()
    writer.encode(TEXT)
    assert not ended
    last = read(writer.encode([Finish(0, "stop", USAGE)]))[-1]
    writer.failure(ValueError("late"))
    assert ended == [last["response"]]


def test_deltas_are_joined_where_it_is_asked_for():
    assert kinds(streamed(TEXT, stream_interval=2)).count("output_text.delta") == 1


def test_logprobs():
    entry = TokenLogprob(72, -0.25, 1, ((72, -0.25), (104, -1.5)))
    text = [PartStart(0, "text", ""), PartDelta(0, "H", (72,), (entry,)), PartEnd(0)]
    events = streamed(text, top_logprobs=2)
    shown = [{"token": "H", "logprob": -0.25, "bytes": [72]}, {"token": "h", "logprob": -1.5, "bytes": [104]}]
    expected = [{**shown[0], "top_logprobs": shown}]
    assert [e["logprobs"] for e in events if "output_text" in e["type"]] == [expected, expected]
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == expected
    assert streamed(text)[-1]["response"]["output"][0]["content"][0]["logprobs"] == []


def replayed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output a client puts together from the deltas of a stream alone."""
    items: dict[int, dict[str, Any]] = {}
    for event in events:
        kind = event["type"].removeprefix("response.")
        if "output_index" not in event:
            continue
        place = event["output_index"]
        if kind == "output_item.added":
            assert place == len(items), "items come in order"
            items[place] = json.loads(json.dumps(event["item"]))
            continue
        item = items[place]
        assert event.get("item_id", item["id"]) == item["id"]
        match kind:
            case "content_part.added":
                assert event["content_index"] == len(item["content"])
                item["content"].append(dict(event["part"]))
            case "reasoning_summary_part.added":
                item["summary"].append(dict(event["part"]))
            case "output_text.delta" | "reasoning_text.delta":
                item["content"][event["content_index"]]["text"] += event["delta"]
            case "reasoning_summary_text.delta":
                item["summary"][event["summary_index"]]["text"] += event["delta"]
            case "function_call_arguments.delta":
                item["arguments"] += event["delta"]
            case "custom_tool_call_input.delta":
                item["input"] += event["delta"]
            case "output_text.done" | "reasoning_text.done":
                assert event["text"] == item["content"][event["content_index"]]["text"]
            case "reasoning_summary_text.done":
                assert event["text"] == item["summary"][event["summary_index"]]["text"]
            case "content_part.done":
                assert event["part"] == item["content"][event["content_index"]]
            case "reasoning_summary_part.done":
                assert event["part"] == item["summary"][event["summary_index"]]
            case "function_call_arguments.done":
                assert event["arguments"] == item["arguments"]
            case "custom_tool_call_input.done":
                assert event["input"] == item["input"]
            case "output_item.done":
                item["status"] = event["item"]["status"]
                if "encrypted_content" in item:
                    item["encrypted_content"] = event["item"]["encrypted_content"]
                assert event["item"] == item
    return [items[place] for place in sorted(items)]


pieces = st.lists(st.text(max_size=8), max_size=4)
parts = st.one_of(
    st.builds(lambda p: part("text", *p), pieces),
    st.builds(lambda p: part("reasoning", *p), pieces),
    st.builds(lambda p, n: part("tool_call", *p, name=n, call_id="call_x"), pieces, st.sampled_from(["shell", "mcp__notes__add", "new"])),
    st.builds(lambda p: part("custom_call", *p, name="apply_patch", call_id="call_y"), pieces),
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(parts, max_size=5),
    st.sampled_from(["stop", "tool_calls", "length"]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
)
def test_a_stream_adds_up_to_the_answer_in_one_piece(
    answer: list[list[ChatEvent]], reason: str, summaries: bool, carried: bool, interval: int
):
    fields: dict[str, Any] = {
        "reasoning": {"summary": "auto" if summaries else None},
        "include": ["reasoning.encrypted_content"] if carried else [],
        "stream_interval": interval,
    }
    events = streamed(*answer, reason=reason, **fields)
    last = events[-1]["response"]
    output = replayed(events)
    if reason == "length" and output and output[-1]["type"].endswith("_call"):
        output[-1]["status"] = "incomplete"  # never reported done
    assert output == last["output"]
    Response.model_validate(last)

    reply = Reply.empty(1)
    reply.add([event for one in answer for event in one] + [Finish(0, reason, USAGE)])
    chosen = replace(options(**fields), stream=False)
    assert encode_response(HEAD, chosen, reply, LogprobWriter(ByteTokenizer())) == last
