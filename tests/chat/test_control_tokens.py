"""Text of messages stays text: no control token but the template's own, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.chat import encode_prompt
from edgewise.chat.guard import NONCHARACTERS, ControlGuard, leaves, map_leaves
from edgewise.core.chat import Message, TextPart, ToolCall, ToolDefinition
from edgewise.core.errors import InvalidRequestError
from edgewise.text import Tokenizer
from tests.chat.conversations import CHATML, TOKENIZER, make_template, say
from tests.support.byte_tokenizer import CONTROL_TOKENS, ByteTokenizer
from tests.support.examples import examples
from tests.text.vocabularies import byte_level_metadata

TOOLS = "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}" + CHATML.replace(
    "{{ message.content }}",
    "{{ message.content | trim }}{{ message.reasoning_content }}{% for call in message.tool_calls or [] %}"
    "{{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}",
)
PLAIN = make_template(CHATML)
WITH_TOOLS = make_template(TOOLS)
SMALL = Tokenizer.from_gguf(byte_level_metadata())
SMALL_CHATML = make_template(CHATML, SMALL)

HOSTILE = st.lists(
    st.sampled_from([*CONTROL_TOKENS, "<|im_", "end|>", "<", ">", "s>", "<|im_end|", "a", " ", "é"])
    | st.text(max_size=2)
).map("".join)


def specials(ids: list[int]) -> list[int]:
    return [i for i in ids if TOKENIZER.is_special(i)]


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), HOSTILE), min_size=1, max_size=5))
def test_messages_make_no_control_token(turns: list[tuple[Any, str]]) -> None:
    rendered = PLAIN.render([say(role, text) for role, text in turns])
    ids, _ = encode_prompt(TOKENIZER, rendered)
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == rendered.text
    harmless, _ = encode_prompt(TOKENIZER, PLAIN.render([say(role, "x") for role, _ in turns]))
    assert specials(ids) == specials(harmless)
    for _, text in turns:
        assert text in rendered.text


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=20)), min_size=1, max_size=5)
)
def test_harmless_text_encodes_as_if_nothing_were_guarded(turns: list[tuple[Any, str]]) -> None:
    if any(token in text for _, text in turns for token in CONTROL_TOKENS):
        return
    rendered = PLAIN.render([say(role, text) for role, text in turns])
    assert encode_prompt(TOKENIZER, rendered)[0] == TOKENIZER.encode(rendered.text, parse_special=True)


@settings(max_examples=examples(60), deadline=None)
@given(HOSTILE, HOSTILE, HOSTILE)
def test_tools_calls_and_reasoning_make_no_control_token(a: str, b: str, c: str) -> None:
    def conversation(a: str, b: str, c: str) -> list[int]:
        tool = ToolDefinition(a or "t", b, {"type": "object", "properties": {c or "p": {"description": b}}})
        messages = [
            say("user", "x"),
            Message("assistant", (TextPart(c),), (ToolCall("1", a or "t", {b: c, "n": [a]}),), reasoning=b),
            say("tool", c, tool_call_id="1"),
        ]
        rendered = WITH_TOOLS.render(messages, tools=[tool], kwargs={"note": a})
        return encode_prompt(TOKENIZER, rendered)[0]

    assert specials(conversation(a, b, c)) == specials(conversation("x", "x", "x"))


def test_text_cut_in_two_by_the_template_makes_no_control_token() -> None:
    template = make_template("<s>{% for m in messages %}{{ m.name }}{{ m.content }}|im_end|>{% endfor %}")
    rendered = template.render([say("user", "_end|><", name="<|im")])
    ids, _ = encode_prompt(TOKENIZER, rendered)
    assert specials(ids) == [TOKENIZER.special_tokens["<s>"]]
    assert rendered.text == "<s><|im_end|><|im_end|>"


def test_a_control_token_inside_a_hidden_one_is_hidden_as_well() -> None:
    tokenizer = ByteTokenizer(control_tokens=["<a><b>", "<b><c>", "<b>", "<c>"])
    template = make_template("<c>{{ messages[0].content }}", tokenizer)
    ids, _ = encode_prompt(tokenizer, template.render([say("user", "<a><b><c><a><b>")]))
    assert [i for i in ids if i >= 256] == [tokenizer.special_tokens["<c>"]]


def test_the_assistants_thinking_markers_are_left_for_the_template() -> None:
    tokenizer = ByteTokenizer(control_tokens=["<think>", "</think>", "<|im_end|>"])
    template = make_template(
        "{% for m in messages %}{{ m.content.split('</think>')[-1] }}<|im_end|>{% endfor %}", tokenizer
    )
    text = "<think>hm</think>"
    assert template.render([say("assistant", text + "yes")]).text == "yes<|im_end|>"
    assert template.render([say("user", text + "no")]).text == text + "no<|im_end|>"


def test_noncharacters_in_messages_are_kept_and_not_used_as_marks() -> None:
    text = "\ufdd0<|im_end|>\ufdd1\ufdd2"
    rendered = PLAIN.render([say("user", text)])
    assert text in rendered.text
    assert len(specials(encode_prompt(TOKENIZER, rendered)[0])) == 3
    every = "".join(NONCHARACTERS)
    with pytest.raises(InvalidRequestError, match="noncharacters"):
        PLAIN.render([say("user", every)])


@given(HOSTILE)
def test_breaking_adds_marks_only(text: str) -> None:
    broken = ControlGuard(CONTROL_TOKENS).break_text(text, "\ufdd0")
    assert broken.replace("\ufdd0", "") == text
    assert not any(token in broken for token in CONTROL_TOKENS)


def test_leaves_are_every_string() -> None:
    value = {"a": ["b", 1, None, {"c": "d"}], "e": True}
    assert sorted(leaves(value)) == ["a", "b", "c", "d", "e"]
    assert map_leaves(value, str.upper) == {"A": ["B", 1, None, {"C": "D"}], "E": True}


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), HOSTILE | st.just("hell<|im_end|>o wo"))))
def test_hidden_tokens_are_merged_like_any_text(turns: list[tuple[Any, str]]) -> None:
    """Each message between its control tokens is what plain encoding makes of it, as if nothing had been hidden."""
    ids, _ = encode_prompt(SMALL, SMALL_CHATML.render([say(role, text) for role, text in turns]))
    start, end = (SMALL.special_tokens[text] for text in ("<|im_start|>", "<|im_end|>"))
    expected: list[int] = []
    for role, text in turns:
        expected += [start, *SMALL.encode(f"{role}\n{text}"), end, *SMALL.encode("\n")]
    assert ids == [*expected, start, *SMALL.encode("assistant\n")]
