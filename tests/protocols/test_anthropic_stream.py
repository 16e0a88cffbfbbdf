"""The events of a streamed message: valid for Anthropic's own types, in order, and equal to the message in one piece."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta, PartEnd, PartKind, PartStart
from edgewise.core.errors import ContextLengthError, RequestCancelledError
from edgewise.core.requests import Usage
from edgewise.protocols.anthropic import encode_response, signature_of
from edgewise.protocols.anthropic_stream import AnthropicStreamEncoder
from edgewise.protocols.reply import PromptEcho, Reply, ReplyHead

HEAD = ReplyHead("msg_1", 1_700_000_000, "m")
USAGE = Usage(prompt_tokens=30, completion_tokens=7, cached_tokens=20, reasoning_tokens=2)
Part = tuple[PartKind, str, list[str]]  # kind, name, deltas


def answer(parts: Iterable[Part], reason: str = "stop", matched: str | int | None = None) -> list[ChatEvent]:
    events: list[ChatEvent] = []
    for number, (kind, name, deltas) in enumerate(parts):
        events.append(PartStart(0, kind, f"id-{number}", name))
        events += [PartDelta(0, delta, (1,)) for delta in deltas]
        events.append(PartEnd(0))
    return [*events, Finish(0, reason, USAGE, matched)]


def encoder() -> AnthropicStreamEncoder:
    return AnthropicStreamEncoder(HEAD, PromptEcho("", range(30), cached_tokens=16))


def events_of(data: bytes) -> list[Any]:
    """The payloads; every event's name is its payload's type."""
    assert data.endswith(b"\n\n") or not data
    events = []
    for event in data.decode().split("\n\n")[:-1]:
        name, payload = event.split("\n")
        events.append(json.loads(payload.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def stream(events: Iterable[ChatEvent], *, life: bool = False) -> list[Any]:
    made = encoder()
    pieces = [made.opening()]
    for event in events:
        pieces += [made.encode([event]), made.keepalive() if life else b""]
    return events_of(b"".join([*pieces, made.closing()]))


def whole(events: Iterable[ChatEvent]) -> dict[str, Any]:
    reply = Reply.empty(1)
    reply.add(events)
    message: dict[str, Any] = json.loads(orjson.dumps(encode_response(HEAD, reply)))
    return message


def joined(events: list[Any]) -> dict[str, Any]:
    """What a client makes of the events; asserts that blocks come one at a time and in order."""
    message = events[0]["message"]
    arguments = ""
    open_block: dict[str, Any] | None = None
    for event in events[1:]:
        match event["type"]:
            case "content_block_start":
                assert open_block is None and event["index"] == len(message["content"])
                open_block, arguments = event["content_block"], ""
                message["content"].append(open_block)
            case "content_block_delta":
                assert open_block is not None and event["index"] == len(message["content"]) - 1
                delta = event["delta"]
                match delta["type"]:
                    case "text_delta":
                        open_block["text"] += delta["text"]
                    case "thinking_delta":
                        open_block["thinking"] += delta["thinking"]
                    case "signature_delta":
                        open_block["signature"] = delta["signature"]
                    case "input_json_delta":
                        arguments += delta["partial_json"]
            case "content_block_stop":
                assert open_block is not None and event["index"] == len(message["content"]) - 1
                if open_block["type"] == "tool_use":
                    open_block["input"] = json.loads(arguments)
                open_block = None
            case "message_delta":
                assert event["delta"]["stop_reason"] is None or open_block is None
                message |= event["delta"]
                message["usage"] |= event["usage"]
    return message


TEXTS = st.lists(st.text(max_size=6), max_size=4)
VALUES = st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4) | st.none(), max_size=3)


@st.composite
def parts(draw: st.DrawFn) -> list[Part]:
    made: list[Part] = []
    for kind in draw(st.lists(st.sampled_from(["text", "reasoning", "tool_call"]), max_size=5)):
        if kind == "tool_call":
            arguments = json.dumps(draw(VALUES), ensure_ascii=False)
            cut = draw(st.integers(0, len(arguments)))
            made.append(("tool_call", "put", [arguments[:cut], arguments[cut:]]))
        else:
            made.append((kind, "", draw(TEXTS)))
    return made


@given(parts(), st.sampled_from(["stop", "length", "tool_calls"]), st.none() | st.just("END."), st.booleans())
def test_a_stream_adds_up_to_the_message_in_one_piece(
    made: list[Part], reason: str, matched: str | None, life: bool
):
    events = answer(made, reason, matched)
    streamed = stream(events, life=life)
    assert streamed[0]["type"] == "message_start" and streamed[-1]["type"] == "message_stop"
    assert joined(streamed) == whole(events)


@pytest.mark.slow
@given(parts())
def test_every_event_is_one_that_anthropic_s_package_knows(made: list[Part]):
    types = pytest.importorskip("anthropic.types")
    known = {
        "message_start": types.RawMessageStartEvent,
        "content_block_start": types.RawContentBlockStartEvent,
        "content_block_delta": types.RawContentBlockDeltaEvent,
        "content_block_stop": types.RawContentBlockStopEvent,
        "message_delta": types.RawMessageDeltaEvent,
        "message_stop": types.RawMessageStopEvent,
    }
    for event in stream(answer(made), life=True):
        if event["type"] != "ping":
            known[event["type"]].model_validate(event)
    types.Message.model_validate(whole(answer(made)))


def test_thinking_then_text_then_two_calls():
    made: list[Part] = [
        ("reasoning", "", ["hm", "m"]),
        ("text", "", ["Writing."]),
        ("tool_call", "put", ['{"path": "Zü', 'rich"}']),
        ("tool_call", "clock", []),
    ]
    events = stream(answer(made, "tool_calls"))
    kinds = [(e["type"], e.get("index")) for e in events]
    assert kinds == [
        ("message_start", None), ("ping", None),
        ("content_block_start", 0), ("content_block_delta", 0), ("content_block_delta", 0), ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1), ("content_block_delta", 1), ("content_block_stop", 1),
        ("content_block_start", 2), ("content_block_delta", 2), ("content_block_delta", 2), ("content_block_stop", 2),
        ("content_block_start", 3), ("content_block_delta", 3), ("content_block_stop", 3),
        ("message_delta", None), ("message_stop", None),
    ]  # fmt: skip
    message = joined(events)
    assert message["content"] == [
        {"type": "thinking", "thinking": "hmm", "signature": signature_of("hmm")},
        {"type": "text", "text": "Writing."},
        {"type": "tool_use", "id": "id-2", "name": "put", "input": {"path": "Zürich"}},
        {"type": "tool_use", "id": "id-3", "name": "clock", "input": {}},
    ]
    pieces = [
        e["delta"]["partial_json"] for e in events if e.get("delta", {}).get("type") == "input_json_delta"
    ]
    assert pieces == ['{"path": "Zü', 'rich"}', "{}"]
    assert message["stop_reason"] == "tool_use"


def test_numbers_of_arguments_keep_their_digits():
    text = '{"big": 123456789012345678901234567890, "small": 1.10}'
    reply = Reply.empty(1)
    reply.add(answer([("tool_call", "f", [text])], "tool_calls"))
    assert text.encode() in orjson.dumps(encode_response(HEAD, reply))


def test_the_first_event_carries_the_true_prompt_and_the_last_the_true_split():
    first, *_, last, _ = stream(answer([("text", "", ["x"])]))
    assert first["message"]["usage"]["input_tokens"] == 14
    assert first["message"]["usage"]["cache_read_input_tokens"] == 16
    assert first["message"]["stop_reason"] is None and first["message"]["content"] == []
    usage = last["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (10, 20, 7)
    assert usage["output_tokens_details"] == {"thinking_tokens": 2}
    for counts in (first["message"]["usage"], usage):
        prompt = [value for name, value in counts.items() if name.endswith("input_tokens")]
        assert sum(prompt) == 30


@pytest.mark.parametrize(
    ("reason", "matched", "calls", "expected"),
    [
        ("stop", None, False, ("end_turn", None)),
        ("stop", 257, False, ("end_turn", None)),
        ("stop", "END.", False, ("stop_sequence", "END.")),
        ("length", None, False, ("max_tokens", None)),
        ("length", None, True, ("max_tokens", None)),
        ("tool_calls", None, True, ("tool_use", None)),
        ("stop", 257, True, ("tool_use", None)),  # one named tool had to be called
    ],
)
def test_why_an_answer_ended(
    reason: str, matched: str | int | None, calls: bool, expected: tuple[str, str | None]
):
    made: list[Part] = [("tool_call", "f", ["{}"])] if calls else [("text", "", ["x"])]
    message = whole(answer(made, reason, matched))
    assert (message["stop_reason"], message["stop_sequence"]) == expected


def test_a_sign_of_life_is_one_that_counts_and_changes_nothing():
    made = encoder()
    made.opening()
    made.encode([PartStart(0, "text", "t"), PartDelta(0, "ab", (1, 2))])
    ping, life = events_of(made.keepalive())
    assert ping == {"type": "ping"}
    assert life == {
        "type": "message_delta",
        "delta": {"stop_reason": None, "stop_sequence": None},
        "usage": {"output_tokens": 2},
    }


def test_an_empty_answer_has_no_blocks():
    events: list[ChatEvent] = [
        PartStart(0, "text", "t"),
        PartDelta(0, "", (1,)),
        PartEnd(0),
        Finish(0, "stop", USAGE),
    ]
    assert joined(stream(events))["content"] == whole(events)["content"] == []


@pytest.mark.parametrize("cut", range(4))
def test_a_failure_is_one_error_event_and_no_end(cut: int):
    events = [*itertools.islice(answer([("text", "", ["a", "b"])]), cut), Failed(ZeroDivisionError("secret"))]
    made = encoder()
    *_, error = events_of(made.opening() + made.encode(events) + made.closing())
    assert error["type"] == "error" and error["error"]["type"] == "api_error"
    assert "secret" not in error["error"]["message"]


def test_a_cancelled_answer_does_not_look_whole():
    events = answer([("text", "", ["a"])], "cancelled")
    assert stream(events)[-1]["type"] == "error"
    with pytest.raises(RequestCancelledError):
        whole(events)


def test_an_error_before_the_first_block():
    (error,) = events_of(encoder().failure(ContextLengthError(prompt_tokens=9, max_model_len=8)))
    assert error["error"]["message"].startswith("prompt is too long: 9 tokens > 8")
