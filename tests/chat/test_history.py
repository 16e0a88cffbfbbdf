"""Histories as clients send them: calls, results, thinking, volatile lines, and templates that take little of it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from edgewise.chat import ChatTemplate
from edgewise.chat.dialects import dialect
from edgewise.chat.history import Capabilities, arrange, tool_schemas
from edgewise.core.chat import CUSTOM_SCHEMA, Message, TextPart, ToolCall, ToolDefinition
from tests.chat.conversations import CHATML, STRICT, make_template, say

PUT = ToolDefinition("put", "Write", {"type": "object", "properties": {"path": {"type": "string"}}})
CALLS = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for call in m.tool_calls or [] %}"
    "({{ call.id }} {{ call.function.name }} {{ call.function.arguments | tojson }}){% endfor %}"
    "{% if m.tool_call_id %}[{{ m.tool_call_id }}]{% endif %};{% endfor %}"
)
ITEMS = "{% for m in messages %}{{ m.content }}{% for call in m.tool_calls or [] %}<{% for k, v in call.function.arguments.items() %}{{ k }}={{ v }},{% endfor %}>{% endfor %};{% endfor %}"
NINE = CALLS.replace(
    "({{ call.id }}",
    "{% if call.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}({{ call.id }}",
)
FIRST_ONLY = CALLS.replace("in m.tool_calls or []", "in (m.tool_calls or [])[:1]")
ONE_THOUGHT = CALLS.replace(
    "{{ m.content }}",
    "{% if m.tool_calls and m.content and m.thinking %}{{ raise_exception('not both') }}{% endif %}{{ m.thinking }}{{ m.content }}",
)


def calling(*calls: ToolCall, **more: Any) -> Message:
    return Message("assistant", tool_calls=calls, **more)


@functools.cache
def template_of(source: str) -> ChatTemplate:
    return make_template(source)


@pytest.fixture(scope="module", autouse=True)
def end_processes() -> Iterator[None]:
    yield
    template_of.cache_clear()  # whose process ends with it


def rendered(source: str, messages: list[Message], **more: Any) -> str:
    return template_of(source).render(messages, **more).text


@pytest.mark.parametrize(
    "arguments", ['{"path":"é"}', '{ "path": "é" }', '{"path": "\\u00e9"}', {"path": "é"}]
)
def test_arguments_have_one_spelling(arguments: Any) -> None:
    messages = [say("user", "hi"), calling(ToolCall("c1", "put", arguments))]
    assert rendered(CALLS, messages) == 'user:hi;assistant:(c1 put {"path": "é"});'
    as_text = arrange(messages, Capabilities(object_arguments=False))[1]["tool_calls"][0]["function"]
    assert as_text["arguments"] == '{"path": "é"}'


@pytest.mark.parametrize(
    "escape", [r"\ud83d", r"\uDC00", r"\ud83d\n", r"\udc00\ud83d", r"\ud83d\ude00\ud83d"]
)
def test_half_a_character_in_arguments_is_a_replacement_character(escape: str) -> None:
    messages = [say("user", "hi"), calling(ToolCall("c1", "put", f'{{"path": "a{escape}z"}}'))]
    text = rendered(CALLS, messages)
    assert "\ufffd" in text and text.encode()
    assert ("😀" in text) is (len(escape) == 18)


@pytest.mark.parametrize("broken", ['{"path": "ls', "[1]", "words", "[" * 99_999])
def test_broken_arguments_are_text_on_every_template(broken: str) -> None:
    messages = [say("user", "hi"), calling(ToolCall("c1", "put", broken))]
    assert rendered(ITEMS, messages) == f"hi;<arguments={broken},>;"
    assert broken in rendered(CALLS, messages).replace('\\"', '"')


def test_missing_ids_are_made_and_results_find_their_calls() -> None:
    messages = [
        say("user", "hi"),
        calling(ToolCall("", "put", "{}"), ToolCall("", "put", "{}")),
        say("tool", "one"),
        say("tool", "two"),
    ]
    assert rendered(CALLS, messages) == (
        "user:hi;assistant:(call00000 put {})(call00001 put {});tool:one[call00000];tool:two[call00001];"
    )


def test_ids_are_shortened_where_the_template_wants_them_short() -> None:
    messages = [say("user", "hi"), calling(ToolCall("toolu_01ABCDEF", "put", "{}"))]
    messages.append(say("tool", "ok", tool_call_id="toolu_01ABCDEF"))
    first = rendered(NINE, messages)
    made = first.partition("(")[2].partition(" ")[0]
    assert len(made) == 9
    assert made.isalnum()
    assert f"[{made}]" in first
    assert rendered(NINE, [*messages, say("user", "more")]).startswith(first)
    kept = rendered(NINE, [say("user", "hi"), calling(ToolCall("abcDEF123", "put", "{}"))])
    assert "(abcDEF123 " in kept


def test_each_call_has_its_turn_where_a_template_writes_only_the_first() -> None:
    messages = [
        say("user", "hi"),
        calling(ToolCall("c1", "put", "{}"), ToolCall("c2", "get", "{}"), parts=(TextPart("both"),)),
        say("tool", "two", tool_call_id="c2"),
        say("tool", "one", tool_call_id="c1"),
        say("tool", "stray", tool_call_id="c9"),
    ]
    assert rendered(FIRST_ONLY, messages) == (
        "user:hi;assistant:both(c1 put {});tool:one[c1];assistant:(c2 get {});tool:two[c2];tool:stray[c9];"
    )


def test_text_and_calls_have_their_turns_where_a_template_leaves_one_out() -> None:
    source = CALLS.replace("{{ m.content }}", "{% if not m.tool_calls %}{{ m.content }}{% endif %}")
    messages = [say("user", "hi"), calling(ToolCall("c1", "put", "{}"), parts=(TextPart("I write."),))]
    assert rendered(source, messages) == "user:hi;assistant:I write.;assistant:(c1 put {});"


def test_thinking_and_text_beside_a_call_are_joined_where_they_must_be() -> None:
    call = ToolCall("c1", "put", "{}")
    messages = [say("user", "hi"), calling(call, parts=(TextPart("I write."),), reasoning="hm")]
    assert "assistant:hm\n\nI write.(c1 put {});" in rendered(ONE_THOUGHT, messages)


def test_thinking_as_a_part_of_the_content() -> None:
    source = (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
        "{% if part.type == 'thinking' %}[THINK]{{ part.thinking }}[/THINK]{% else %}{{ part.text }}{% endif %}"
        "{% endfor %}{% endif %};{% endfor %}"
    )
    messages = [say("user", "hi"), say("assistant", "yo", reasoning="hm"), say("user", "more")]
    assert rendered(source, messages) == "hi;[THINK]hm[/THINK]yo;more;"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content", "thinking"])
def test_thinking_reaches_a_template_under_its_name_for_it(name: str) -> None:
    source = CHATML.replace("{{ message.content }}", "{{ message." + name + " }}{{ message.content }}")
    text = rendered(source, [say("user", "hi"), say("assistant", "yo", reasoning="hm"), say("user", "x")])
    assert "assistant\nhmyo<|im_end|>" in text


BILLING = "x-anthropic-billing-header: cc_version=9.9; cch={};"


@pytest.mark.parametrize(
    "system",
    [
        lambda line: [say("system", line, "You help.")],
        lambda line: [say("system", line), say("system", "You help.")],
        lambda line: [say("system", line + "\n\nYou help.")],
    ],
)
@pytest.mark.parametrize("source", [CHATML, STRICT])
def test_the_billing_line_is_left_out(system: Any, source: str) -> None:
    def prompt(line: str) -> str:
        return rendered(source, [*system(line), say("user", "hi")])

    assert prompt(BILLING.format("a1b2")) == prompt(BILLING.format("c3d4"))
    assert "You help." in prompt(BILLING.format("a1b2"))
    assert "x-anthropic" not in prompt(BILLING.format("a1b2"))
    assert BILLING in rendered(source, [say("user", BILLING)])


def test_custom_tools_are_functions_of_one_string() -> None:
    [schema] = tool_schemas([ToolDefinition("patch", "Edit.", None, kind="custom")])
    assert schema["function"]["parameters"] == CUSTOM_SCHEMA
    assert schema["function"]["description"].startswith("Edit.\n\n")
    assert "input" in schema["function"]["description"]


@pytest.mark.parametrize("source", [CHATML, STRICT])
def test_a_template_without_tools_is_told_of_them_and_shown_calls(source: str) -> None:
    hermes = dialect("hermes")
    messages = [
        say("system", "Rule."),
        say("user", "hi"),
        calling(ToolCall("c1", "put", '{"path": "a"}')),
        say("tool", "ok", tool_call_id="c1"),
    ]
    text = rendered(source, messages, tools=[PUT], tool_dialect=hermes)
    assert "Rule.\n\n" + hermes.instructions([PUT]) in text
    assert hermes.render([ToolCall("c1", "put", {"path": "a"})]) in text
    without = rendered(source, messages[1:2], tools=[PUT], tool_dialect=hermes)
    assert hermes.instructions([PUT]) in without
    assert "<tools>" not in rendered(source, messages[1:2], tool_dialect=hermes)


def test_a_template_with_tools_is_not_told_again() -> None:
    source = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" + CALLS
    text = rendered(source, [say("user", "hi")], tools=[PUT], tool_dialect=dialect("hermes"))
    assert text.count('"name": "put"') == 1


def test_a_continued_turn_has_its_thinking_closed() -> None:
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}<think>\n{% endif %}"
        "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
    )
    text = rendered(source, [say("user", "hi"), say("assistant", "Sure:")], continue_final_message=True)
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n</think>\n\nSure:"


def test_a_template_that_moves_the_system_text_gets_it_where_it_stays() -> None:
    moving = (
        "{% set ns = namespace(rule='') %}{% for m in messages if m.role == 'system' %}{% set ns.rule = m.content %}{% endfor %}"
        "{% for m in messages if m.role != 'system' %}{{ m.role }}:"
        "{% if loop.last and ns.rule %}{{ ns.rule }} {% endif %}{{ m.content }};{% endfor %}"
    )
    start = [say("system", "A"), say("user", "hi")]
    first = rendered(moving, start)
    assert rendered(moving, [*start, say("assistant", "yo"), say("user", "more")]).startswith(first)
    assert "A" in first


def test_nothing_in_a_turn_is_an_empty_turn() -> None:
    turns = arrange([say("user", "hi"), Message("assistant"), say("user", "", "x")], Capabilities())
    assert [turn["content"] for turn in turns] == ["hi", "", "\nx"]
