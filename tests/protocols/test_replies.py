"""Replies: the shapes clients read, and that a stream adds up to the answer in one piece."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta, PartEnd, PartStart
from edgewise.core.errors import EngineDeadError, InvalidRequestError, OverloadedError
from edgewise.core.requests import TokenLogprob, Usage
from edgewise.protocols import chat, completions
from edgewise.protocols.chat_stream import ChatStreamEncoder
from edgewise.protocols.completions import CompletionStreamEncoder
from edgewise.protocols.errors import encode_error, status_of
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.reply import PromptEcho, Reply, ReplyHead, ReplyOptions
from edgewise.protocols.stream import DeltaMerger
from tests.support.byte_tokenizer import ByteTokenizer

HEAD = ReplyHead("id-1", 1_700_000_000, "m")
WRITER = LogprobWriter(ByteTokenizer())


def logprob(token: int, value: float = -0.5) -> TokenLogprob:
    return TokenLogprob(token, value, 1, ((token, value), (token + 1, value - 1)))


def answer(text: str, *, choice: int = 0, tokens: bool = True, reason: str = "stop") -> list[ChatEvent]:
    deltas = [
        PartDelta(choice, letter, (ord(letter),) if tokens else (), (logprob(ord(letter)),))
        for letter in text
    ]
    usage = Usage(prompt_tokens=3, completion_tokens=len(text), cached_tokens=2)
    return [PartStart(choice, "text", "t"), *deltas, PartEnd(choice), Finish(choice, reason, usage, "END")]


def sent(body: Any) -> Any:
    """What a client reads of a body."""
    return orjson.loads(orjson.dumps(body))


def chunks(data: bytes) -> list[Any]:
    """The JSON of every data line; the end mark is checked and left out."""
    events = [event for event in data.decode().split("\n\n") if event]
    lines = [event.removeprefix("data: ") for event in events if not event.startswith(":")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def chat_stream(
    options: ReplyOptions, events: Iterable[ChatEvent], prompt: PromptEcho | None = None
) -> bytes:
    encoder = ChatStreamEncoder(HEAD, options, WRITER, prompt or PromptEcho("", [1, 2, 3]))
    return encoder.opening() + encoder.encode(events) + encoder.closing()


def completion_stream(options: ReplyOptions, events: Iterable[ChatEvent], *prompts: PromptEcho) -> bytes:
    encoder = CompletionStreamEncoder(HEAD, options, WRITER, prompts or [PromptEcho("ab", [97, 98])])
    return encoder.opening() + encoder.encode(events) + encoder.closing()


def test_a_chat_stream_opens_with_the_role_and_ends_with_the_reason_and_the_mark():
    data = chat_stream(ReplyOptions(stream=True), answer('h"\n'))
    assert data.endswith(b"data: [DONE]\n\n")
    first, *middle, last = chunks(data)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [c["choices"][0]["delta"] for c in middle] == [
        {"content": "h"},
        {"content": '"'},
        {"content": "\n"},
    ]
    assert last["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
        "stop_reason": "END",
    }
    assert {(c["id"], c["object"], c["created"], c["model"]) for c in chunks(data)} == {
        ("id-1", "chat.completion.chunk", 1_700_000_000, "m")
    }
    assert all("usage" not in c for c in chunks(data))


def test_usage_comes_once_last_with_no_choices_and_is_null_before():
    *others, last = chunks(chat_stream(ReplyOptions(stream=True, include_usage=True), answer("hi")))
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == 3
    assert last["usage"]["completion_tokens"] == 2
    assert last["usage"]["total_tokens"] == 5
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    assert all(c["usage"] is None for c in others)


def test_continuous_usage_counts_tokens_as_they_come():
    options = ReplyOptions(stream=True, include_usage=True, continuous_usage=True)
    counted = [c["usage"]["completion_tokens"] for c in chunks(chat_stream(options, answer("hey")))]
    assert counted == [0, 1, 2, 3, 3, 3]
    options = ReplyOptions(stream=True, include_usage=True, continuous_usage=True)
    counted = [c["usage"]["completion_tokens"] for c in chunks(completion_stream(options, answer("hey")))]
    assert counted == [1, 2, 3, 3, 3]


def test_reasoning_and_calls_have_deltas_of_their_own():
    events: list[ChatEvent] = [
        PartStart(0, "reasoning", "r"),
        PartDelta(0, "hm"),
        PartEnd(0),
        PartStart(0, "tool_call", "c1", "put"),
        PartDelta(0, '{"a":'),
        PartDelta(0, "1}"),
        PartEnd(0),
        PartStart(0, "tool_call", "c2", "get"),
        PartDelta(0, "{}"),
        PartEnd(0),
        Finish(0, "tool_calls", Usage()),
    ]
    deltas = [c["choices"][0]["delta"] for c in chunks(chat_stream(ReplyOptions(stream=True), events))]
    assert deltas[1] == {"reasoning": "hm", "reasoning_content": "hm"}
    opening, first, second, other, more = (d["tool_calls"][0] for d in deltas[2:7])
    assert opening == {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "put", "arguments": ""},
    }
    assert first["function"]["arguments"] + second["function"]["arguments"] == '{"a":1}'
    assert (other["index"], other["id"], more["index"]) == (1, "c2", 1)
    reply = Reply.empty(1)
    reply.add(events)
    message = sent(chat.encode_response(HEAD, ReplyOptions(), reply, WRITER, PromptEcho()))["choices"][0][
        "message"
    ]
    assert message["content"] is None and message["reasoning"] == "hm"
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == ['{"a":1}', "{}"]


def test_chat_logprobs_carry_exact_bytes_and_alternatives():
    options = ReplyOptions(stream=True, logprobs=1)
    streamed = chunks(
        chat_stream(options, [PartStart(0, "text", "t"), PartDelta(0, "é", (0xC3,), (logprob(0xC3),))])
    )
    entry = streamed[1]["choices"][0]["logprobs"]["content"][0]
    assert entry["bytes"] == [0xC3] and entry["logprob"] == -0.5
    assert [top["bytes"] for top in entry["top_logprobs"]] == [[0xC3], [0xC4]]


def test_tokens_can_be_named_by_id():
    named = sent(LogprobWriter(ByteTokenizer(), tokens_as_ids=True).chat([logprob(65)]))
    assert named["content"][0]["token"] == "token_id:65"


def test_completion_logprobs_keep_their_offsets_over_chunks_and_echo():
    prompt = PromptEcho("ab", [97, 98], [None, logprob(98)])
    options = ReplyOptions(stream=True, echo=True, logprobs=1)
    data = chunks(completion_stream(options, answer("cd"), prompt))
    streamed = [c["choices"][0] for c in data]
    assert "".join(c["text"] for c in streamed) == "abcd"
    found = [c["logprobs"] for c in streamed if c["logprobs"]]
    assert list(chain.from_iterable(f["tokens"] for f in found)) == ["a", "b", "c", "d"]
    assert list(chain.from_iterable(f["text_offset"] for f in found)) == [0, 1, 2, 3]
    assert list(chain.from_iterable(f["token_logprobs"] for f in found)) == [None, -0.5, -0.5, -0.5]
    reply = Reply.empty(1)
    reply.add(answer("cd"))
    whole = sent(completions.encode_response(HEAD, options, [reply], WRITER, [prompt]))["choices"][0]
    assert whole["text"] == "abcd"
    assert whole["logprobs"]["text_offset"] == [0, 1, 2, 3]
    assert whole["logprobs"]["top_logprobs"][0] is None
    assert whole["logprobs"]["top_logprobs"][2] == {"c": -0.5, "d": -1.5}


def test_an_answer_without_tokens_still_echoes():
    events = [Finish(0, "length", Usage(prompt_tokens=2))]
    data = chunks(completion_stream(ReplyOptions(stream=True, echo=True), events))
    assert "".join(c["choices"][0]["text"] for c in data) == "ab"


def test_choices_of_several_prompts_are_numbered_prompt_by_prompt():
    options = ReplyOptions(num_choices=2, best_of=2)
    replies = [Reply.empty(2), Reply.empty(2)]
    replies[0].add([*answer("a"), *answer("b", choice=1)])
    replies[1].add([*answer("c"), *answer("d", choice=1)])
    body = sent(completions.encode_response(HEAD, options, replies, WRITER, [PromptEcho(), PromptEcho()]))
    assert [(c["index"], c["text"]) for c in body["choices"]] == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    assert body["usage"]["prompt_tokens"] == 6


def test_best_of_keeps_the_likeliest_choices():
    reply = Reply.empty(3)
    for choice, value in enumerate((-3.0, -1.0, -2.0)):
        delta = PartDelta(choice, str(choice), (48 + choice,), (logprob(48 + choice, value),))
        reply.add([PartStart(choice, "text", "t"), delta, Finish(choice, "stop", Usage())])
    options = ReplyOptions(num_choices=2, best_of=3)
    body = sent(completions.encode_response(HEAD, options, [reply], WRITER, [PromptEcho()]))
    assert [c["text"] for c in body["choices"]] == ["1", "2"]


def test_prompt_logprobs_are_by_id_with_rank_and_text():
    reply = Reply.empty(1)
    reply.add(answer("x"))
    prompt = PromptEcho("ab", [97, 98], [None, TokenLogprob(98, -2.0, 7, ((97, -0.1),))])
    body = sent(chat.encode_response(HEAD, ReplyOptions(prompt_logprobs=True), reply, WRITER, prompt))
    assert body["prompt_logprobs"] == [
        None,
        {
            "97": {"logprob": -0.1, "rank": 1, "decoded_token": "a"},
            "98": {"logprob": -2.0, "rank": 7, "decoded_token": "b"},
        },
    ]


def test_infinite_logprobs_are_written_as_a_number():
    encoded = json.dumps(sent(WRITER.chat([TokenLogprob(65, float("-inf"), 9)])), allow_nan=False)
    assert "-9999.0" in encoded


@given(st.lists(st.text(max_size=4), max_size=8), st.integers(1, 5), st.lists(st.integers(1, 4), max_size=4))
def test_merged_deltas_lose_nothing_and_are_long_enough(texts: list[str], interval: int, cuts: list[int]):
    deltas = [PartDelta(0, text, (i,), (logprob(i),)) for i, text in enumerate(texts)]
    events: list[ChatEvent] = [PartStart(0, "text", "t"), *deltas, PartEnd(0), Finish(0, "stop", Usage())]
    merger = DeltaMerger(interval)
    merged: list[ChatEvent] = []
    for cut in [*cuts, len(events)]:
        merged += merger.merge(events[:cut])
        events = events[cut:]
    found = [event for event in merged if isinstance(event, PartDelta)]
    assert "".join(d.text for d in found) == "".join(texts)
    assert [i for d in found for i in d.token_ids] == list(range(len(texts)))
    assert all(len(d.token_ids) == interval for d in found[:-1])
    assert isinstance(merged[-1], Finish)


@given(st.text(max_size=30))
def test_plain_and_rich_chunks_carry_any_text(text: str):
    events = [PartStart(0, "text", "t"), PartDelta(0, text, (1,)), PartEnd(0), Finish(0, "stop", Usage())]
    for options in (ReplyOptions(stream=True), ReplyOptions(stream=True, token_ids=True)):
        streamed = chunks(chat_stream(options, events))
        assert "".join(c["choices"][0]["delta"].get("content", "") for c in streamed) == text
        streamed = chunks(completion_stream(options, events))
        assert "".join(c["choices"][0]["text"] for c in streamed) == text


def test_an_error_inside_a_stream_is_an_event_and_ends_it():
    for encoder in (
        ChatStreamEncoder(HEAD, ReplyOptions(), WRITER, PromptEcho()),
        CompletionStreamEncoder(HEAD, ReplyOptions(), WRITER, [PromptEcho()]),
    ):
        data = encoder.encode([Failed(EngineDeadError("out of luck"))])
        assert data.endswith(b"data: [DONE]\n\n")
        assert "out of luck" in chunks(data)[0]["error"]["message"]


def test_signs_of_life_are_of_the_kind_clients_count():
    sign = ChatStreamEncoder(HEAD, ReplyOptions(), WRITER, PromptEcho()).keepalive()
    assert sign.startswith(b": ") and chunks(sign)[0]["choices"][0]["delta"] == {}
    assert (
        CompletionStreamEncoder(HEAD, ReplyOptions(), WRITER, [PromptEcho()]).keepalive() == b": working\n\n"
    )


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidRequestError("no", param="n"), 400, None),
        (InvalidRequestError("no", code="model_not_found"), 404, "model_not_found"),
        (OverloadedError("full"), 503, "server_overloaded"),
        (EngineDeadError("dead"), 500, "engine_dead"),
        (ZeroDivisionError("secret detail"), 500, "internal_error"),
    ],
)
def test_errors_have_a_status_and_a_code(error: Exception, status: int, code: str | None):
    assert status_of(error) == status
    body = encode_error(error)["error"]
    assert set(body) == {"message", "type", "param", "code"} and body["code"] == code
    assert "secret" not in body["message"]
