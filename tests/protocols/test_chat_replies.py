"""Chat completions read from the client's side: the shapes of several servers, cut anywhere, and the way there and back."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta, PartEnd, PartStart
from edgewise.core.errors import UpstreamError
from edgewise.core.requests import Usage
from edgewise.protocols.chat_replies import StreamParser, parse_response
from edgewise.protocols.chat_stream import ChatStreamEncoder
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.reply import PromptEcho, Reply, ReplyHead, ReplyOptions
from edgewise.protocols.sse import SseEvent, SseParser

USAGE = Usage(prompt_tokens=31, completion_tokens=9, cached_tokens=7, reasoning_tokens=2)


def read(stream: bytes, cuts: list[int] | None = None) -> list[ChatEvent]:
    sse, parser = SseParser(), StreamParser()
    places = [0, *sorted(cuts or []), len(stream)]
    events: list[ChatEvent] = []
    for a, b in itertools.pairwise(places):
        for event in sse.feed(stream[a:b]):
            events += parser.feed(event)
    for event in sse.close():
        events += parser.feed(event)
    return events + parser.close()


def stream_of(*chunks: dict[str, Any] | str, done: bool = True) -> bytes:
    lines = [chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}" for chunk in chunks]
    return "".join(f"{line}\n\n" for line in [*lines, *(["data: [DONE]"] if done else [])]).encode()


def delta(reason: str | None = None, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": fields, "finish_reason": reason}]}


def call(
    index: int | None = None, call_id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    piece: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
    if index is not None:
        piece["index"] = index
    return piece | ({"id": call_id, "type": "function"} if call_id else {})


def told(events: list[ChatEvent], choice: int = 0) -> list[tuple[str, ...]]:
    """The parts of a choice, each with its whole text, then the reason it stopped."""
    found: list[tuple[str, ...]] = []
    is_open = False
    for event in events:
        if isinstance(event, Failed):
            found.append(("failed", str(event.error)))
        elif event.choice == choice:
            match event:
                case PartStart():
                    assert not is_open, "parts overlap"
                    is_open = True
                    found.append((event.kind, event.name, ""))
                case PartDelta():
                    assert is_open, "text outside a part"
                    *head, text = found[-1]
                    found[-1] = (*head, text + event.text)
                case PartEnd():
                    assert is_open
                    is_open = False
                case Finish():
                    assert not is_open, "a finish inside a part"
                    found.append(("finish", event.reason))
    return found


PARTS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.just(""), st.lists(st.text(min_size=1), min_size=1, max_size=3)),
        st.tuples(st.just("reasoning"), st.just(""), st.lists(st.text(min_size=1), min_size=1, max_size=3)),
        st.tuples(
            st.just("tool_call"),
            st.sampled_from(["read", "write.file"]),
            st.dictionaries(st.text(max_size=3), st.text(), max_size=2).map(lambda d: [json.dumps(d)]),
        ),
    ),
    max_size=5,
)


def joined(parts: list[Any]) -> list[Any]:
    """Neighbouring texts of one kind are one part on this wire."""
    kept: list[Any] = []
    for kind, name, pieces in parts:
        if kept and kind != "tool_call" and kept[-1][0] == kind:
            kept[-1] = (kind, name, kept[-1][2] + pieces)
        else:
            kept.append((kind, name, pieces))
    return kept


def events_of(parts: list[Any], choice: int) -> list[ChatEvent]:
    events: list[ChatEvent] = []
    for i, (kind, name, pieces) in enumerate(parts):
        events.append(PartStart(choice, kind, f"call_{choice}_{i}" if kind == "tool_call" else "", name))
        events += [PartDelta(choice, piece) for piece in pieces]
        events.append(PartEnd(choice))
    reason = "tool_calls" if any(kind == "tool_call" for kind, _, _ in parts) else "stop"
    return [*events, Finish(choice, reason, USAGE, None)]


@given(st.lists(PARTS, min_size=1, max_size=2), st.lists(st.integers(0, 400), max_size=6))
def test_what_our_server_streams_is_read_as_it_was(choices: list[Any], cuts: list[int]):
    choices = [joined(parts) for parts in choices]
    options = ReplyOptions(stream=True, num_choices=len(choices), include_usage=True)
    head = ReplyHead("chatcmpl-1", 1, "m")
    encoder = ChatStreamEncoder(head, options, LogprobWriter(None), PromptEcho())  # type: ignore[arg-type]
    events = [event for i, parts in enumerate(choices) for event in events_of(parts, i)]
    stream = encoder.opening() + encoder.encode(events) + encoder.keepalive() + encoder.closing()
    back = read(stream, [cut % (len(stream) + 1) for cut in cuts])
    for i in range(len(choices)):
        assert told(back, i) == told(events, i)
    starts = [(e.choice, e.id, e.name) for e in events if isinstance(e, PartStart) and e.kind == "tool_call"]
    assert [
        (e.choice, e.id, e.name) for e in back if isinstance(e, PartStart) and e.kind == "tool_call"
    ] == starts
    assert all(e.usage == USAGE for e in back if isinstance(e, Finish))


def test_calls_in_pieces_that_interleave_lose_nothing():
    stream = stream_of(
        delta(role="assistant", content=None),
        delta(tool_calls=[call(0, "a", "read", "")]),
        delta(tool_calls=[call(0, arguments='{"p":')]),
        delta(tool_calls=[call(1, "b", "write", '{"q"')]),
        delta(tool_calls=[call(0, arguments="1}"), call(1, arguments=":2}")]),
        delta("tool_calls"),
    )
    assert told(read(stream)) == [
        ("tool_call", "read", '{"p":1}'),
        ("tool_call", "write", '{"q":2}'),
        ("finish", "tool_calls"),
    ]


@pytest.mark.parametrize(
    "pieces",
    [
        [call(None, "a", "f", '{"x": 1}'), call(None, "b", "g", "{}")],
        [call(0, "a", "f", '{"x": 1}'), call(0, "b", "g", "{}")],
        [call(0, "a", "f", {"x": 1}), call(1, "b", "g", {})],
        [call(3, "a", "f", '{"x": 1}'), call(7, "b", "g", "{}")],
    ],
    ids=["no index", "always index 0", "objects", "gaps"],
)
def test_calls_as_servers_number_them(pieces: list[Any]):
    for stream in (
        stream_of(*(delta(tool_calls=[piece]) for piece in pieces), delta("tool_calls")),
        stream_of(delta("tool_calls", tool_calls=pieces)),
    ):
        (_, f, x), (_, g, y), end = told(read(stream))
        assert (f, json.loads(x), g, json.loads(y), end) == ("f", {"x": 1}, "g", {}, ("finish", "tool_calls"))


def test_a_call_without_an_id_gets_one():
    events = read(stream_of(delta(tool_calls=[call(0, None, "f", "{}")]), delta("tool_calls")))
    assert [e.id.startswith("call_") for e in events if isinstance(e, PartStart)] == [True]


def test_a_name_that_comes_after_the_id():
    stream = stream_of(
        delta(tool_calls=[call(0, "a")]), delta(tool_calls=[call(0, None, "f", "{}")]), delta("tool_calls")
    )
    assert told(read(stream)) == [("tool_call", "f", "{}"), ("finish", "tool_calls")]


def test_a_freeform_call():
    first = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "patch", "input": "*** Be"}}
    rest = {"index": 0, "custom": {"input": "gin"}}
    other = call(1, "b", "f", "{}")
    stream = stream_of(
        delta(tool_calls=[first]), delta(tool_calls=[rest]), delta("tool_calls", tool_calls=[other])
    )
    assert told(read(stream)) == [
        ("custom_call", "patch", "*** Begin"),
        ("tool_call", "f", "{}"),
        ("finish", "tool_calls"),
    ]


def test_edge_llms_chunks_with_every_key():
    nulls = dict.fromkeys(("role", "content", "reasoning_content", "tool_calls", "audio"))
    stream = stream_of(
        delta(**nulls | {"role": "assistant"}),
        delta(**nulls | {"reasoning_content": "hm"}),
        delta(**nulls | {"content": "hi"}),
        delta("stop", **nulls),
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
    )
    events = read(stream)
    assert told(events) == [("reasoning", "", "hm"), ("text", "", "hi"), ("finish", "stop")]
    assert isinstance(events[-1], Finish) and events[-1].usage == Usage(3, 2)


def test_llama_servers_counts_without_usage():
    timings = {"cache_n": 5, "prompt_n": 3, "predicted_n": 2}
    events = read(stream_of(delta(content="hi"), {**delta("stop"), "timings": timings}))
    assert isinstance(events[-1], Finish) and events[-1].usage == Usage(8, 2, 5)


def test_both_spellings_of_thinking_are_read_once():
    events = read(stream_of(delta(reasoning="hm", reasoning_content="hm"), delta("stop", content="x")))
    assert told(events) == [("reasoning", "", "hm"), ("text", "", "x"), ("finish", "stop")]


def test_a_stream_that_breaks_off_fails():
    assert told(read(stream_of(delta(content="hi"), done=False)))[-1][0] == "failed"
    assert told(read(b""))[-1][0] == "failed"
    assert told(read(stream_of(delta(content="hi"), delta("stop"), done=False)))[-1] == ("finish", "stop")


@pytest.mark.parametrize(
    ("chunk", "message", "status"),
    [
        ({"error": {"message": "too bad", "type": "engine_error", "code": 503}}, "too bad", 503),
        ({"error": "plain"}, "plain", 502),
        ('event: error\ndata: {"message": "named", "type": "x"}', "named", 502),
        ("data: {nonsense", "The upstream sent an event that is not JSON.", 502),
    ],
)
def test_an_error_in_the_middle(chunk: Any, message: str, status: int):
    events = read(stream_of(delta(content="hi"), chunk))
    assert isinstance(events[-1], Failed) and isinstance(events[-1].error, UpstreamError)
    assert (events[-1].error.message, events[-1].error.status) == (message, status)


def test_nothing_follows_the_end():
    parser = StreamParser()
    parser.feed(SseEvent("", json.dumps(delta("stop", content="x")).encode()))
    parser.feed(SseEvent("", b"[DONE]"))
    assert parser.feed(SseEvent("", json.dumps(delta(content="y")).encode())) == []
    assert parser.close() == []


def test_a_whole_reply():
    message = {
        "role": "assistant",
        "content": "done",
        "reasoning_content": "hm",
        "tool_calls": [call(None, "a", "f", '{"x": 1}')],
    }
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    reply = Reply.empty(1)
    reply.add(parse_response({"choices": choices, "usage": {"prompt_tokens": 4, "completion_tokens": 5}}))
    (choice,) = reply.choices
    assert [(p.kind, p.text) for p in choice.parts] == [
        ("reasoning", "hm"),
        ("text", "done"),
        ("tool_call", '{"x": 1}'),
    ]
    assert (choice.finish_reason, reply.usage) == ("tool_calls", Usage(4, 5))


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": None}, {"error": {"message": "no"}}])
def test_a_whole_reply_that_is_none(body: dict[str, Any]):
    with pytest.raises(UpstreamError):
        parse_response(body)
