"""A streamed chat answer, joined, is the answer in one piece, over random sequences of events."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.core.chat import ChatEvent, Finish, PartDelta, PartEnd, PartStart
from edgewise.core.requests import TokenLogprob, Usage
from edgewise.protocols import chat
from edgewise.protocols.chat_stream import ChatStreamEncoder
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.reply import PromptEcho, Reply, ReplyHead, ReplyOptions
from tests.support.byte_tokenizer import ByteTokenizer
from tests.support.examples import examples

HEAD = ReplyHead("chatcmpl-1", 1_700_000_000, "m")
WRITER = LogprobWriter(ByteTokenizer())

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
deltas = st.lists(st.tuples(texts, st.booleans()), max_size=4)
kinds = st.sampled_from(["text", "reasoning", "tool_call", "custom_call"])


@st.composite
def one_choice(draw: st.DrawFn, choice: int, kind_of: st.SearchStrategy[str]) -> list[ChatEvent]:
    events: list[ChatEvent] = []
    called = False
    for i, (kind, pieces) in enumerate(draw(st.lists(st.tuples(kind_of, deltas), max_size=5))):
        is_call = kind.endswith("_call")
        called = called or is_call
        name = draw(st.sampled_from(["put", "get"])) if is_call else ""
        events.append(PartStart(choice, kind, f"{kind}-{choice}-{i}", name))  # type: ignore[arg-type]
        for text, has_token in pieces:
            token = 65 + i
            logprobs = (TokenLogprob(token, -0.5, 1, ((token, -0.5),)),) if has_token else None
            events.append(PartDelta(choice, text, (token,) if has_token else (), logprobs))
        events.append(PartEnd(choice))
    reason = draw(st.sampled_from(["stop", "length"]))
    usage = Usage(prompt_tokens=3, completion_tokens=9, cached_tokens=2, reasoning_tokens=4)
    return [*events, Finish(choice, "tool_calls" if called and reason == "stop" else reason, usage)]


@st.composite
def answers(draw: st.DrawFn, kind_of: st.SearchStrategy[str] = kinds) -> tuple[int, list[ChatEvent]]:
    """(number of choices, their events interleaved at random)."""
    num_choices = draw(st.integers(1, 3))
    queues = [draw(one_choice(i, kind_of)) for i in range(num_choices)]
    events: list[ChatEvent] = []
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        events.append(queue.pop(0))
    return num_choices, events


def chunks_of(options: ReplyOptions, events: list[ChatEvent], cut: int = 1) -> list[dict[str, Any]]:
    encoder = ChatStreamEncoder(HEAD, options, WRITER, PromptEcho("", [1, 2, 3]))
    data = (
        encoder.opening() + encoder.encode(events[:cut]) + encoder.keepalive() + encoder.encode(events[cut:])
    )
    lines = [line for line in (data + encoder.closing()).decode().split("\n\n") if line.startswith("data: ")]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def joined(chunks: list[dict[str, Any]], index: int) -> dict[str, Any]:
    """What a client that adds the deltas up has at the end."""
    message: dict[str, Any] = {"role": None, "content": None}
    choice: dict[str, Any] = {"message": message, "logprobs": [], "token_ids": [], "finish_reason": None}
    for part in (part for chunk in chunks for part in chunk["choices"] if part["index"] == index):
        assert choice["finish_reason"] is None, "nothing follows the reason, no sign of life either"
        delta = dict(part["delta"])
        for piece in delta.pop("tool_calls", ()):
            _add_call(message.setdefault("tool_calls", []), piece)
        if (call := delta.pop("function_call", None)) is not None:
            _add_text(message.setdefault("function_call", {}), call)
        _add_text(message, delta)
        choice["logprobs"] += (part["logprobs"] or {"content": []})["content"]
        choice["token_ids"] += part.get("token_ids", [])
        choice["finish_reason"] = part["finish_reason"]
    return choice


def _add_call(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    place = piece.pop("index")
    assert place in (len(calls), len(calls) - 1), "an index is the last call's or the next one's"
    if place == len(calls):
        assert piece["id"] and piece["type"] and piece[piece["type"]]["name"], "a call opens with id and name"
        calls.append(piece)
        return
    assert set(piece) <= {"function", "custom"}, "later deltas of a call hold its text alone"
    kind = calls[place]["type"]
    assert "name" not in piece[kind]
    _add_text(calls[place][kind], piece[kind])


def _add_text(target: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        target[key] = (target.get(key) or "") + value


def encoded(options: ReplyOptions, events: list[ChatEvent]) -> dict[str, Any]:
    reply = Reply.empty(options.num_choices)
    reply.add(events)
    return orjson.loads(
        orjson.dumps(chat.encode_response(HEAD, options, reply, WRITER, PromptEcho("", [1, 2, 3])))
    )


OPTIONS: list[Callable[[int], ReplyOptions]] = [
    lambda n: ReplyOptions(stream=True, num_choices=n, best_of=n),
    lambda n: ReplyOptions(stream=True, num_choices=n, best_of=n, include_usage=True, stream_interval=3),
    lambda n: ReplyOptions(stream=True, num_choices=n, best_of=n, logprobs=1, token_ids=True),
    lambda n: ReplyOptions(
        stream=True, num_choices=n, best_of=n, include_usage=True, continuous_usage=True, stream_interval=2
    ),
]


@pytest.mark.parametrize("options_for", OPTIONS)
@settings(max_examples=examples(60), deadline=None)
@given(answer=answers(), cut=st.integers(0, 20))
def test_a_joined_stream_is_the_answer_in_one_piece(
    options_for: Callable[[int], ReplyOptions], answer: tuple[int, list[ChatEvent]], cut: int
):
    num_choices, events = answer
    options = options_for(num_choices)
    chunks = chunks_of(options, events, cut)
    whole = encoded(options, events)
    for index, expected in enumerate(whole["choices"]):
        found = joined(chunks, index)
        message = expected["message"]
        assert (found["message"].pop("content") or "") == (message.pop("content") or "")
        assert found["message"] == message
        assert found["finish_reason"] == expected["finish_reason"]
        if options.logprobs is not None:
            assert found["logprobs"] == expected["logprobs"]["content"]
        if options.token_ids:
            assert found["token_ids"] == expected["token_ids"]
    if options.include_usage:
        assert chunks[-1]["usage"] == whole["usage"]
        assert whole["usage"]["completion_tokens_details"] == {"reasoning_tokens": 4}


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(answers(st.sampled_from(["text", "reasoning", "tool_call"])))
def test_openai_s_package_reads_every_chunk_and_the_whole(answer: tuple[int, list[ChatEvent]]):
    types = pytest.importorskip("openai.types.chat")
    num_choices, events = answer
    for options_for in OPTIONS:
        for chunk in chunks_of(options_for(num_choices), events):
            types.ChatCompletionChunk.model_validate(chunk)
            assert all(choice["delta"].get("tool_calls") != [] for choice in chunk["choices"])
        body = encoded(options_for(num_choices), events)
        types.ChatCompletion.model_validate(body)


@pytest.mark.slow
def test_openai_s_package_reads_freeform_calls_in_one_piece():
    types = pytest.importorskip("openai.types.chat")
    events: list[ChatEvent] = [
        PartStart(0, "custom_call", "c1", "patch"),
        PartDelta(0, "*** x"),
        PartEnd(0),
        Finish(0, "tool_calls", Usage()),
    ]
    (choice,) = types.ChatCompletion.model_validate(encoded(ReplyOptions(), events)).choices
    assert choice.message.content is None
    assert (choice.message.tool_calls[0].custom.name, choice.message.tool_calls[0].custom.input) == (
        "patch",
        "*** x",
    )


@settings(max_examples=examples(40), deadline=None)
@given(answers(st.sampled_from(["text", "tool_call"])))
def test_functions_are_answered_in_kind(answer: tuple[int, list[ChatEvent]]):
    num_choices, events = answer
    options = ReplyOptions(stream=True, num_choices=num_choices, best_of=num_choices, legacy_calls=True)
    chunks = chunks_of(options, events)
    for index, expected in enumerate(encoded(options, events)["choices"]):
        found = joined(chunks, index)
        assert "tool_calls" not in found["message"] and "tool_calls" not in expected["message"]
        assert found["message"].get("function_call") == expected["message"].get("function_call")
        assert found["finish_reason"] == expected["finish_reason"] != "tool_calls"


def test_two_calls_have_two_places_and_no_empty_deltas():
    events: list[ChatEvent] = []
    for name in ("put", "get"):
        events += [PartStart(0, "tool_call", name, name), PartDelta(0, ""), PartDelta(0, "{}"), PartEnd(0)]
    deltas = [c["choices"][0]["delta"] for c in chunks_of(ReplyOptions(stream=True), events, 0)]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert [call["index"] for call in calls] == [0, 0, 1, 1]
    assert [call.get("id") for call in calls] == ["put", None, "get", None]
