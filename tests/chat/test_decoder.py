"""The decoder: thinking, text and calls as parts that never overlap, with every token on some delta."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.chat.custom_input import CustomInput
from edgewise.chat.decoder import ChatDecoder
from edgewise.chat.dialects import dialect
from edgewise.chat.reasoning import reasoning_dialect, reasoning_names
from edgewise.core.chat import ChatEvent, PartDelta, PartEnd, PartStart, ToolChoice, ToolDefinition
from edgewise.core.requests import TokenLogprob
from tests.chat.dialects.support import CASES
from tests.support.examples import examples

PUT = ToolDefinition("put", None, {"type": "object", "properties": {"path": {"type": "string"}}})
PATCH = ToolDefinition("patch", None, None, kind="custom")
TOOLS = (PUT, PATCH)
CALL = '<tool_call>\n{"name": "put", "arguments": {"path": "a.py"}}\n</tool_call>'


@dataclass
class Answer:
    """What a client makes of the events."""

    parts: list[tuple[str, str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    logprob_ids: list[int] = field(default_factory=list)
    is_open: bool = False

    def take(self, events: list[ChatEvent]) -> None:
        for event in events:
            match event:
                case PartStart():
                    assert not self.is_open
                    self.is_open = True
                    self.parts.append((event.kind, ""))
                    self.names += [event.name] if event.name else []
                case PartDelta():
                    assert self.is_open
                    kind, text = self.parts[-1]
                    self.parts[-1] = kind, text + event.text
                    self.ids += event.token_ids
                    self.logprob_ids += [each.token_id for each in event.logprobs or ()]
                case PartEnd():
                    assert self.is_open
                    self.is_open = False


def decoder(
    *,
    tools: tuple[ToolDefinition, ...] = TOOLS,
    choice: ToolChoice | None = None,
    is_open: bool = False,
    bare_calls: bool = True,
    show_reasoning: bool = True,
    name: str = "hermes",
    reasoning: str = "qwen3",
) -> ChatDecoder:
    numbers = itertools.count()
    return ChatDecoder(
        0,
        tools=tools,
        choice_mode=choice or ToolChoice(),
        parser=dialect(name).parser(tools, new_id=lambda: f"call{next(numbers)}") if tools else None,
        splitter=reasoning_dialect(reasoning).splitter(is_open),
        bare_calls=bare_calls,
        show_reasoning=show_reasoning,
    )


def run(writer: ChatDecoder, pieces: list[str], reason: str = "stop") -> tuple[Answer, str]:
    """The answer of text that comes in pieces, token i with piece i."""
    answer = Answer()
    for i, piece in enumerate(pieces):
        answer.take(writer.push(piece, (i,), (TokenLogprob(i, -1.0, 1),)))
    events, reason = writer.finish(reason)
    answer.take(events)
    assert not answer.is_open
    assert answer.ids == answer.logprob_ids == list(range(len(pieces)))
    return answer, reason


@pytest.mark.parametrize(
    ("text", "parts", "reason"),
    [
        ("Hello\n", [("text", "Hello\n")], "stop"),
        (
            "<think>\nhm\n</think>\n\nHello",
            [("reasoning", "hm"), ("text", "Hello")],
            "stop",
        ),
        (
            f"<think>\nhm\n</think>\n\nI write it.\n{CALL}\n{CALL}",
            [
                ("reasoning", "hm"),
                ("text", "I write it."),
                ("tool_call", '{"path": "a.py"}'),
                ("tool_call", '{"path": "a.py"}'),
            ],
            "tool_calls",
        ),
        (
            f"<think>\nhm\n</think>\n\n{CALL}",
            [("reasoning", "hm"), ("tool_call", '{"path": "a.py"}')],
            "tool_calls",
        ),
        (
            '```json\n{"name": "put", "arguments": {"path": "a.py"}}\n```\nDone.',
            [("tool_call", '{"path": "a.py"}'), ("text", "\nDone.")],
            "tool_calls",
        ),
        (
            '<think>x</think>{"name": "put", "arguments": {"path": "a.py"}}',
            [("reasoning", "x"), ("tool_call", '{"path": "a.py"}')],
            "tool_calls",
        ),
        (
            '<tool_call>\n{"name": "patch", "arguments": {"input": "a\\n\\"\\ud83d\\ude00\\u00e9\\\\"}}\n</tool_call>',
            [("custom_call", 'a\n"😀é\\')],
            "tool_calls",
        ),
        (
            '<tool_call>\n{"name": "put", "arguments": {"path": "</think><think>"}}\n</tool_call>',
            [("tool_call", '{"path": "</think><think>"}')],
            "tool_calls",
        ),
        (
            '<tool_call>\n{"name": "put", "arguments": {"path": "a.p',
            [("tool_call", '{"path": "a.p"}')],
            "stop",
        ),
        ("", [], "stop"),
        ("<think>\n\n</think>\n\n", [("text", "")], "stop"),
    ],
)
def test_parts(text: str, parts: list[tuple[str, str]], reason: str) -> None:
    for pieces in ([text] if text else [], list(text)):
        answer, found = run(decoder(), pieces)
        assert (answer.parts, found) == (parts, reason)


def test_the_finish_reason_fits_the_body() -> None:
    assert run(decoder(), [CALL], "length")[1] == "length"
    assert run(decoder(), [CALL], "cancelled")[1] == "cancelled"
    named = ToolChoice("required", ("put",), named=True)
    assert run(decoder(choice=named), [CALL])[1] == "stop"
    assert run(decoder(choice=ToolChoice("required")), [CALL])[1] == "tool_calls"
    assert run(decoder(tools=()), [CALL]) == (Answer([("text", CALL)], ids=[0], logprob_ids=[0]), "stop")


def test_bare_calls_are_counted_and_can_be_switched_off() -> None:
    text = '{"name": "put", "arguments": {}}'
    writer = decoder()
    assert run(writer, [text])[0].names == ["put"]
    assert writer.bare_calls_seen == 1
    writer = decoder(bare_calls=False)
    assert run(writer, [text])[0].parts == [("text", text)]
    assert writer.bare_calls_seen == 0


def test_hidden_thinking_keeps_its_tokens() -> None:
    writer = decoder(show_reasoning=False)
    answer, _ = run(writer, ["<think>", "a", "b", "</think>", "\n\n", "Hi"])
    assert answer.parts == [("text", "Hi")]
    assert writer.hidden_reasoning_tokens == 3


def test_thinking_that_never_ends_is_still_reasoning() -> None:
    assert run(decoder(is_open=True), ["half a ", "thought"])[0].parts == [("reasoning", "half a thought")]


def test_arguments_stream_as_they_are_made() -> None:
    writer = decoder()
    assert writer.push('<tool_call>\n{"name": "put", "arguments": {"path": "long', (1,), None) == [
        PartStart(0, "tool_call", "call0", "put"),
        PartDelta(0, '{"path": "long', (1,)),
    ]
    assert writer.push(" text", (2,), None) == [PartDelta(0, " text", (2,))]


def test_custom_input_streams_as_plain_text() -> None:
    writer = decoder()
    writer.push('<tool_call>\n{"name": "patch", "arguments": {"input": "a', (), None)
    assert writer.push("\\", (), None) == []
    assert writer.push("nb\\ud83d", (), None) == [PartDelta(0, "\nb")]
    assert writer.push("\\ude00", (), None) == [PartDelta(0, "😀")]


def test_harmony_channels_and_calls() -> None:
    text = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        '<|start|>assistant<|channel|>commentary to=functions.put <|constrain|>json<|message|>{"path": "<|end|>"}<|call|>'
    )
    for pieces in ([text], list(text)):
        answer, reason = run(decoder(name="openai", reasoning="openai_gptoss"), pieces)
        assert answer.parts == [
            ("reasoning", "hm"),
            ("text", "I look."),
            ("tool_call", '{"path": "<|end|>"}'),
        ]
        assert reason == "tool_calls"


@settings(max_examples=examples(200), deadline=None)
@given(
    st.text() | st.text(alphabet='\\"/\n\x00\ud83d\ude00é😀', max_size=8), st.booleans(), st.integers(1, 7)
)
def test_custom_input_is_the_string(value: str, ascii_only: bool, step: int) -> None:
    if not ascii_only:  # lone surrogates come as escapes only
        value = value.encode(errors="replace").decode()
    reader = CustomInput()
    text = json.dumps({"input": value}, ensure_ascii=ascii_only)
    found = "".join(reader.push(text[i : i + step]) for i in range(0, len(text), step)) + reader.finish()
    assert found == value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@pytest.mark.parametrize(
    ("text", "expected"), [('{"input": 5}', "5"), ("{}", ""), ('{"other": "x"}', '{"other": "x"}'), ("", "")]
)
def test_custom_input_that_is_no_string(text: str, expected: str) -> None:
    reader = CustomInput()
    assert reader.push(text) + reader.finish() == expected


PIECES = [
    "<think>",
    "</think>",
    "\n",
    "Hi",
    CALL,
    *CALL,
    '{"name": "put", "arguments": {}}',
    "```json\n",
    "```",
]


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=10), st.booleans())
def test_any_cut_gives_the_same_answer(pieces: list[str], is_open: bool) -> None:
    text = "".join(pieces)
    whole, reason = run(decoder(is_open=is_open), [text] if text else [])
    for cut in (pieces, list(text)):
        answer, same = run(decoder(is_open=is_open), cut)
        assert (answer.parts, same) == (whole.parts, reason)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_every_dialect_reads_the_same_through_the_decoder(case: dict[str, Any]) -> None:
    """Neither the reader of bare calls nor a splitter of thinking takes anything from the dialects' own parsers."""
    tools = tuple(
        ToolDefinition(each["name"], None, each.get("parameters"))
        for each in (tool.get("function", tool) for tool in case["tools"])
    )
    reasoning = case["dialect"] if case["dialect"] in reasoning_names() else "think_auto"
    for pieces in ([case["text"]], list(case["text"])):
        answer, reason = run(decoder(tools=tools, name=case["dialect"], reasoning=reasoning), pieces)
        content = "".join(text for kind, text in answer.parts if kind == "text")
        calls = [json.loads(text) for kind, text in answer.parts if kind == "tool_call"]
        assert content.strip() == case["content"].strip()
        assert (answer.names, calls) == (
            [call["name"] for call in case["calls"]],
            [call["arguments"] for call in case["calls"]],
        )
        assert reason == ("tool_calls" if calls else "stop")
