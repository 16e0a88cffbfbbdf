"""Requests and replies translated from each API into each other and back: nothing changes but what docs/translation.md lists."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise.core.chat import (
    CUSTOM_INPUT,
    CUSTOM_SCHEMA,
    ChatEvent,
    ChatRequest,
    Failed,
    Finish,
    MediaPart,
    Message,
    PartDelta,
    PartEnd,
    PartStart,
    ReasoningOptions,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolDefinition,
)
from edgewise.core.grammar import OutputFormat
from edgewise.core.requests import Usage
from edgewise.protocols import (
    anthropic,
    chat,
    chat_client,
    chat_replies,
    messages_client,
    messages_replies,
    responses,
    responses_client,
    responses_replies,
)
from edgewise.protocols.anthropic_stream import AnthropicStreamEncoder
from edgewise.protocols.chat_stream import ChatStreamEncoder
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.media import medium_of
from edgewise.protocols.reply import PromptEcho, Reply, ReplyHead, ReplyOptions
from edgewise.protocols.responses import ResponseOptions
from edgewise.protocols.responses_stream import ResponsesStreamEncoder
from edgewise.protocols.responses_stream import encode_response as encode_whole_response
from edgewise.protocols.sse import SseParser
from edgewise.protocols.stream import StreamEncoder

DOC = Path(__file__).parents[2] / "docs" / "translation.md"
WRITER = LogprobWriter(None)  # type: ignore[arg-type]
HEAD = ReplyHead("id_1", 1, "m")

Encode = Callable[..., dict[str, Any]]
ENCODE: dict[str, Encode] = {
    "chat": chat_client.encode_request,
    "messages": messages_client.encode_request,
    "responses": responses_client.encode_request,
}
PARSE: dict[str, Callable[[object], ChatRequest]] = {
    "chat": lambda body: chat.parse_request(body).chat,
    "messages": lambda body: anthropic.parse_request(body).chat,
    "responses": lambda body: responses.parse_request(body).chat,
}
FORMATS = tuple(ENCODE)
PAIRS = list(itertools.permutations(FORMATS, 2))

# What each format cannot carry: a name that docs/translation.md explains, and what a request is without it.

Change = Callable[[ChatRequest], ChatRequest]


def each_message(change: Callable[[Message], Message]) -> Change:
    return lambda r: replace(r, messages=tuple(map(change, r.messages)))


def as_function(tool: ToolDefinition) -> ToolDefinition:
    return replace(tool, kind="function", namespace=None, local_name=tool.name, custom_format=None)


def only_allowed(r: ChatRequest) -> ChatRequest:
    tools, choice = tuple(chat_client.offered(r.tools, r.tool_choice)), r.tool_choice
    return replace(r, tools=tools, tool_choice=choice if choice.named else replace(choice, names=None))


def joined_system(r: ChatRequest) -> ChatRequest:
    head = list(itertools.takewhile(lambda m: m.role in ("system", "developer"), r.messages))
    if not head:
        return r
    one = Message("system", tuple(part for m in head for part in m.parts))
    return replace(r, messages=(one, *r.messages[len(head) :]))


def sampling_among(*names: str) -> Change:
    return lambda r: replace(r, sampling={k: v for k, v in r.sampling.items() if k in names})


def only_strict_schemas(r: ChatRequest) -> ChatRequest:
    form = r.output_format
    if form is None or form.kind != "json_schema":
        return replace(r, output_format=None)
    return replace(r, output_format=replace(form, strict=True, name=""))


def thinking_switched(r: ChatRequest) -> ChatRequest:
    options = r.reasoning
    if not options.enabled:
        options = ReasoningOptions(enabled=options.enabled)
    return replace(r, reasoning=options)


LOSSES: dict[str, dict[str, Change]] = {
    "chat": {
        "freeform tools": lambda r: replace(r, tools=tuple(map(as_function, r.tools))),
        "a choice among some tools": only_allowed,
    },
    "messages": {
        "freeform tools": lambda r: replace(r, tools=tuple(map(as_function, r.tools))),
        "a choice among some tools": only_allowed,
        "developer messages": each_message(lambda m: replace(m, role="system") if m.role == "developer" else m),
        "several system messages at the head": joined_system,
        "names of speakers": each_message(lambda m: replace(m, name=None)),
        "sampling of other APIs": sampling_among("max_tokens", "temperature", "top_p", "top_k", "seed", "stop"),
        "constraints other than a schema": only_strict_schemas,
        "effort or budget without thinking": thinking_switched,
        "a prompt as it stands": lambda r: replace(r, reuse_context=True, apply_chat_template=True),
    },
    "responses": {
        "names of speakers": each_message(lambda m: replace(m, name=None)),
        "a prompt as it stands": lambda r: replace(r, apply_chat_template=True),
        "several choices": lambda r: replace(r, sampling={k: v for k, v in r.sampling.items() if k != "n"}),
    },
}  # fmt: skip


def carried(request: ChatRequest, form: str) -> ChatRequest:
    for change in LOSSES[form].values():
        request = change(request)
    return request


def plain(request: ChatRequest) -> ChatRequest:
    """Without what only tells where something stood in a body, and with every way to say one thing said one way."""

    def part(one: Any) -> Any:
        return (one.kind, medium_of(one)) if isinstance(one, MediaPart) else TextPart(one.text)

    def call(one: ToolCall) -> ToolCall:
        text = one.arguments if isinstance(one.arguments, str) else json.dumps(one.arguments or {})
        return replace(one, arguments=json.loads(text), extra={})

    def message(one: Message) -> Message:
        calls = tuple(map(call, one.tool_calls))
        return replace(one, parts=tuple(map(part, one.parts)), tool_calls=calls, index=0, extra={})

    return replace(
        request,
        messages=tuple(map(message, request.messages)),
        tools=tuple(replace(t, path="", raw={}, parameters=t.parameters or {"type": "object"}) for t in request.tools),
        tool_choice=request.tool_choice if request.tools else ToolChoice(),
        output_format=request.output_format and replace(request.output_format, param="", name=request.output_format.name or "answer"),
        # The switch is a variable of the template as well, which says nothing new.
        template_kwargs={k: v for k, v in request.template_kwargs.items() if k != "enable_thinking"},
        include_usage=False,
        ignored_fields=(),
        extra={},
    )  # fmt: skip


TEXT = st.text(min_size=1, max_size=8).filter(str.strip)
PARTS = st.lists(TEXT.map(TextPart), min_size=1, max_size=2).map(tuple)
JSON_OBJECT = st.dictionaries(
    st.text(max_size=4), st.one_of(st.text(max_size=4), st.integers(-9, 9), st.none()), max_size=2
)
FUNCTIONS = ("read", "write.file", "run-it")
IMAGE = MediaPart("image", {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}})


def tool(name: str) -> ToolDefinition:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    return ToolDefinition(name, f"does {name}", schema, strict=name == "read" or None, local_name=name)


PATCH = ToolDefinition("patch", "freeform", CUSTOM_SCHEMA, kind="custom", local_name="patch")
SPACED = replace(tool("git__log"), namespace="git", local_name="log")
TOOLS = st.lists(
    st.sampled_from([*map(tool, FUNCTIONS), PATCH, SPACED]), max_size=4, unique_by=lambda t: t.name
)


@st.composite
def turns(draw: st.DrawFn, tools: list[ToolDefinition], number: int) -> list[Message]:
    """A user's message, the assistant's turn, the results of its calls."""
    user = draw(PARTS) + ((IMAGE,) if draw(st.booleans()) else ())
    calls = []
    for i in range(draw(st.integers(0, 2)) if tools else 0):
        chosen = draw(st.sampled_from(tools))
        arguments = {CUSTOM_INPUT: draw(TEXT)} if chosen.kind == "custom" else draw(JSON_OBJECT)
        calls.append(ToolCall(f"call_{number}_{i}", chosen.name, json.dumps(arguments)))
    said = draw(st.one_of(st.just(()), PARTS)) if calls else draw(PARTS)
    thought = draw(st.one_of(st.none(), TEXT))
    results = [Message("tool", draw(PARTS), tool_call_id=call.id) for call in calls]
    return [
        Message("user", user, name=draw(st.sampled_from([None, "ada"]))),
        Message("assistant", said, tuple(calls), reasoning=thought),
        *results,
    ]


@st.composite
def requests(draw: st.DrawFn) -> ChatRequest:
    tools = draw(TOOLS)
    messages = [
        Message(draw(st.sampled_from(["system", "developer"])), draw(PARTS))
        for _ in range(draw(st.integers(0, 2)))
    ]
    for number in range(draw(st.integers(0, 3))):
        messages += draw(turns(tools, number))
        if draw(st.booleans()) and messages[-1].role == "tool":
            messages.append(Message("system", draw(PARTS)))
    messages.append(Message("user", draw(PARTS)))
    names = [t.name for t in tools]
    parallel = draw(st.booleans())
    choices = [ToolChoice("auto", parallel=parallel), ToolChoice("none", parallel=parallel)]
    if tools:
        choices += [
            ToolChoice("required", parallel=parallel),
            ToolChoice("required", (names[-1],), named=True, parallel=parallel),
            ToolChoice("auto", tuple(names[:2]), parallel=parallel),
        ]
    sampling = draw(
        st.fixed_dictionaries(
            {"max_tokens": st.integers(1, 99)},
            optional={
                "temperature": st.sampled_from([0.0, 0.5]), "top_p": st.just(0.9), "top_k": st.just(5), "seed": st.integers(0, 9),
                "stop": st.just(["END"]), "n": st.just(2), "presence_penalty": st.just(0.5), "logit_bias": st.just({7: -1.0}),
                "min_p": st.just(0.1), "ignore_eos": st.just(True),
            },
        )
    )  # fmt: skip
    formats = [
        None,
        OutputFormat("json_object"),
        OutputFormat("json_schema", {"type": "object"}, strict=draw(st.booleans()), name="answer"),
        OutputFormat("regex", "a+", strict=True),
        OutputFormat("choice", ("a", "b"), strict=True),
    ]
    reasoning = draw(
        st.sampled_from([
            ReasoningOptions(), ReasoningOptions(False), ReasoningOptions(True), ReasoningOptions(True, "high"),
            ReasoningOptions(True, "low", 2048), ReasoningOptions(True, show=False), ReasoningOptions(False, show=False),
        ])
    )  # fmt: skip
    form = draw(st.sampled_from(formats))
    if form is not None and form.kind == "json_object":
        form = replace(form, strict=False)
    return ChatRequest(
        messages=tuple(messages),
        model="m",
        sampling=sampling,
        tools=tuple(tools),
        tool_choice=draw(st.sampled_from(choices)),
        output_format=form,
        reasoning=reasoning,
        stream=draw(st.booleans()),
        reuse_context=draw(st.booleans()),
        priority=draw(st.sampled_from([0, 3])),
        cache_salt=draw(st.sampled_from(["", "salt"])),
        template_kwargs=draw(st.sampled_from([{}, {"custom": "x"}])),
    )


def there_and_back(request: ChatRequest, form: str) -> ChatRequest:
    body = json.loads(json.dumps(ENCODE[form](request, model="m")))  # as it travels
    return PARSE[form](body)


@pytest.mark.parametrize("form", FORMATS)
@given(request=requests())
def test_a_request_there_and_back(form: str, request: ChatRequest):
    assert plain(there_and_back(request, form)) == plain(carried(request, form))


@pytest.mark.parametrize(("first", "second"), PAIRS)
@given(request=requests())
def test_a_request_by_way_of_another_api(first: str, second: str, request: ChatRequest):
    original = there_and_back(request, first)
    back = there_and_back(there_and_back(original, second), first)
    assert plain(back) == plain(carried(carried(original, second), first))


def test_every_loss_is_explained():
    text = DOC.read_text()
    explained = {
        form: set(re.findall(r"^- \*\*(.+?)\*\*", section, re.MULTILINE))
        for form, section in re.findall(
            r"^## Requests: (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
        )
    }
    assert explained == {form: set(losses) for form, losses in LOSSES.items()}


def test_arguments_that_are_no_object_are_not_lost():
    broken = ToolCall("c", "read", '{"path": ')
    body = messages_client.encode_request(
        ChatRequest((Message("user", (TextPart("hi"),)), Message("assistant", (), (broken,)))), model="m"
    )
    assert body["messages"][1]["content"][0]["input"] == {"broken_arguments": '{"path": '}


# Replies.

USAGE = Usage(prompt_tokens=31, completion_tokens=9, cached_tokens=7, reasoning_tokens=2)
Parser = Callable[[], Any]
PARSERS: dict[str, Parser] = {
    "chat": chat_replies.StreamParser,
    "messages": messages_replies.StreamParser,
    "responses": responses_replies.StreamParser,
}


def encoder(form: str) -> StreamEncoder:
    match form:
        case "chat":
            return ChatStreamEncoder(
                HEAD, ReplyOptions(stream=True, include_usage=True), WRITER, PromptEcho()
            )
        case "messages":
            return AnthropicStreamEncoder(HEAD, PromptEcho())
        case _:
            return ResponsesStreamEncoder(HEAD, ResponseOptions(stream=True), WRITER)


@st.composite
def replies(draw: st.DrawFn) -> list[ChatEvent]:
    events: list[ChatEvent] = []
    before = ""
    has_calls = False
    for i in range(draw(st.integers(1, 4))):
        kind = draw(
            st.sampled_from(
                [k for k in ("text", "reasoning", "tool_call") if k != before or k == "tool_call"]
            )
        )
        before = kind
        if kind == "tool_call":
            has_calls = True
            events.append(PartStart(0, kind, f"call_{i}", draw(st.sampled_from(FUNCTIONS))))
            text = json.dumps(draw(JSON_OBJECT))
            cut = draw(st.integers(1, len(text)))
            pieces = [piece for piece in (text[:cut], text[cut:]) if piece]
        else:
            events.append(PartStart(0, kind, ""))
            pieces = draw(st.lists(TEXT, min_size=1, max_size=3))
        events += [PartDelta(0, piece) for piece in pieces]
        events.append(PartEnd(0))
    reason = draw(st.sampled_from(["length", "tool_calls" if has_calls else "stop"]))
    return [*events, Finish(0, reason, USAGE)]


def gathered(events: list[ChatEvent]) -> list[Any]:
    """A reply as it is told: the parts with their texts, the end with its counts."""
    reply = Reply.empty(1)
    reply.add(events)
    assert reply.error is None, reply.error
    (choice,) = reply.choices
    parts = [(p.kind, p.id if p.kind == "tool_call" else "", p.name, p.text) for p in choice.parts]
    return [*parts, choice.finish_reason, reply.usage]


def streamed(events: list[ChatEvent], form: str, cuts: list[int]) -> list[ChatEvent]:
    one = encoder(form)
    stream = one.opening() + one.encode(events[:2]) + one.keepalive() + one.encode(events[2:]) + one.closing()
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    sse, parser = SseParser(), PARSERS[form]()
    back: list[ChatEvent] = []
    for a, b in itertools.pairwise(places):
        for event in sse.feed(stream[a:b]):
            back += parser.feed(event)
    return [*back, *(e for event in sse.close() for e in parser.feed(event)), *parser.close()]


@pytest.mark.parametrize("form", FORMATS)
@given(events=replies(), cuts=st.lists(st.integers(0, 3000), max_size=5))
def test_a_stream_there_and_back(form: str, events: list[ChatEvent], cuts: list[int]):
    assert gathered(streamed(events, form, cuts)) == gathered(events)


@pytest.mark.parametrize(("first", "second"), PAIRS)
@given(events=replies())
def test_a_stream_by_way_of_another_api(first: str, second: str, events: list[ChatEvent]):
    original = streamed(events, first, [])
    assert gathered(streamed(streamed(original, second, []), first, [])) == gathered(original)


@pytest.mark.parametrize("form", FORMATS)
@given(events=replies())
def test_a_whole_reply_there_and_back(form: str, events: list[ChatEvent]):
    reply = Reply.empty(1)
    reply.add(events)
    match form:
        case "chat":
            body = chat.encode_response(HEAD, ReplyOptions(), reply, WRITER, PromptEcho())
            parse = chat_replies.parse_response
        case "messages":
            body = anthropic.encode_response(HEAD, reply)
            parse = messages_replies.parse_response
        case _:
            body = encode_whole_response(HEAD, ResponseOptions(), reply, WRITER)
            parse = responses_replies.parse_response
    back = gathered(parse(orjson.loads(orjson.dumps(body))))
    wanted = gathered(events)
    if form == "chat":  # one field for each kind: text, thoughts and calls, in the order it gives them
        order = ("reasoning", "text", "tool_call")
        merged: dict[str, str] = {}
        for kind, _, _, text in wanted[:-2]:
            if kind != "tool_call":
                merged[kind] = merged.get(kind, "") + text
        calls = [part for part in wanted[:-2] if part[0] == "tool_call"]
        texts = [(kind, "", "", merged[kind]) for kind in order if kind in merged]
        assert back == [*texts, *calls, *wanted[-2:]]
    elif form == "messages":  # arguments travel as an object there
        assert [p[:3] for p in back[:-2]] == [p[:3] for p in wanted[:-2]] and back[-2:] == wanted[-2:]
        for ours, theirs in zip(back[:-2], wanted[:-2], strict=True):
            same = (
                json.loads(ours[3]) == json.loads(theirs[3])
                if ours[0] == "tool_call"
                else ours[3] == theirs[3]
            )
            assert same
    else:
        assert back == wanted


@pytest.mark.parametrize("form", FORMATS)
def test_a_stream_that_is_cut_off_fails(form: str):
    one = encoder(form)
    events: list[ChatEvent] = [PartStart(0, "text", ""), PartDelta(0, "half")]
    sse, parser = SseParser(), PARSERS[form]()
    back = [e for event in sse.feed(one.opening() + one.encode(events)) for e in parser.feed(event)]
    back += parser.close()
    assert isinstance(back[-1], Failed) and isinstance(back[-2], PartDelta)


@pytest.mark.parametrize("form", FORMATS)
def test_a_stream_that_fails_says_why(form: str):
    one = encoder(form)
    stream = one.opening() + one.failure(ValueError("secret"))
    sse, parser = SseParser(), PARSERS[form]()
    back = [e for event in sse.feed(stream) for e in parser.feed(event)] + parser.close()
    (failed,) = back
    assert isinstance(failed, Failed)
    assert "Internal error" in str(failed.error), "the server's own words"
