"""Rendering: the shape of conversations, continuing, borders, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgewise.chat import Capabilities, ChatTemplate, encode_prompt
from edgewise.core.chat import Message, ToolCall, ToolDefinition
from edgewise.core.errors import InvalidRequestError, ModelError
from tests.chat.conversations import CHATML, STRICT, TOKENIZER, make_template, say
from tests.support.byte_tokenizer import ByteTokenizer

OPENING = "<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def chatml() -> ChatTemplate:
    return make_template(CHATML)


@pytest.fixture(scope="module")
def strict() -> ChatTemplate:
    return make_template(STRICT)


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def test_a_conversation_reads_as_the_template_says(chatml: ChatTemplate) -> None:
    rendered = chatml.render([say("user", "hi"), say("assistant", "yo"), say("user", "more ", "\n")])
    assert rendered.text == turn("user", "hi") + turn("assistant", "yo") + turn("user", "more \n\n") + OPENING
    without = chatml.render([say("user", "hi")], add_generation_prompt=False)
    assert without.text == turn("user", "hi")


def test_capabilities_are_seen(chatml: ChatTemplate, strict: ChatTemplate) -> None:
    assert chatml.capabilities == Capabilities(tools=False, tool_calls=False)
    assert not strict.capabilities.system
    assert not strict.capabilities.late_system
    assert not strict.capabilities.same_role_neighbours
    assert not strict.capabilities.assistant_first


def test_leading_system_messages_are_joined_and_later_ones_stay(chatml: ChatTemplate) -> None:
    messages = [
        say("developer", "A"),
        say("system", "B"),
        say("user", "hi"),
        say("system", "C"),
        say("user", "x"),
    ]
    assert chatml.render(messages).text == (
        turn("system", "A\n\nB") + turn("user", "hi") + turn("system", "C") + turn("user", "x") + OPENING
    )


def test_what_a_strict_template_refuses_becomes_user_text(strict: ChatTemplate) -> None:
    messages = [
        say("system", "A"),
        say("user", "hi"),
        say("system", "C"),
        say("assistant", "yo"),
        say("assistant", "!"),
    ]
    assert strict.render(messages).text == (
        "<s>" + turn("user", "A\n\nhi\n\n<system>\nC\n</system>") + turn("assistant", "yo\n\n!") + OPENING
    )
    assert strict.render([say("assistant", "yo"), say("user", "hi")]).text == (
        "<s>" + turn("user", "") + turn("assistant", "yo") + turn("user", "hi") + OPENING
    )
    assert strict.render([say("system", "alone")]).text == "<s>" + turn("user", "alone") + OPENING


def test_a_template_that_hoists_late_system_text_gets_it_in_place() -> None:
    hoisting = (
        "{% for m in messages if m.role == 'system' %}{{ m.content }}|{% endfor %}"
        "{% for m in messages if m.role != 'system' %}{{ m.role }}:{{ m.content }}|{% endfor %}"
    )
    rendered = make_template(hoisting).render([say("system", "A"), say("user", "hi"), say("system", "B")])
    assert rendered.text == "A|user:hi|user:<system>\nB\n</system>|"


def test_content_as_parts_where_the_template_wants_parts() -> None:
    template = make_template(
        "{% for m in messages %}{% for part in m.content %}{% if part.type == 'text' %}[{{ part.text }}]{% endif %}"
        "{% endfor %}{% endfor %}"
    )
    assert template.capabilities.typed_content
    assert template.render([say("user", "a", "b")]).text == "[a\nb]"
    assert (
        template.render([say("user", "a"), say("assistant", "Sure")], continue_final_message=True).text
        == "[a][Sure"
    )


def test_tools_as_an_empty_list_where_the_template_loops_without_asking() -> None:
    template = make_template(
        "{% for tool in tools %}{{ tool.function.name }};{% endfor %}{{ messages[-1].content }}"
    )
    assert template.render([say("user", "hi")]).text == "hi"
    tool = ToolDefinition("put", "d", {"type": "object"})
    assert template.render([say("user", "hi")], tools=[tool]).text == "put;hi"


CALLS = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for call in m.tool_calls or [] %}"
    "({{ call.function.name }} {{ call.function.arguments | tojson }}){% endfor %};{% endfor %}"
)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"b": "é<", "a": 1}', '{"b": "é<", "a": 1}'),
        ({"b": "é<", "a": 1}, '{"b": "é<", "a": 1}'),
        ("", "{}"),
        (None, "{}"),
        ("not JSON", '"not JSON"'),
    ],
)
def test_call_arguments_are_an_object_however_they_came(arguments: Any, expected: str) -> None:
    messages = [
        say("user", "hi"),
        Message("assistant", tool_calls=(ToolCall("c1", "put", arguments),)),
        say("tool", "ok", tool_call_id="c1"),
    ]
    assert make_template(CALLS).render(messages).text == f"user:hi;assistant:(put {expected});tool:ok;"


def test_calls_and_results_become_text_where_there_are_no_words_for_them(strict: ChatTemplate) -> None:
    messages = [
        say("user", "hi"),
        Message("assistant", tool_calls=(ToolCall("c1", "put", '{"a":1}'),)),
        say("tool", "ok", tool_call_id="c1"),
    ]
    assert strict.render(messages).text == (
        "<s>"
        + turn("user", "hi")
        + turn("assistant", '[called put with {"a": 1}]')
        + turn("user", "<tool_result>\nok\n</tool_result>")
        + OPENING
    )


def test_reasoning_reaches_the_template() -> None:
    template = make_template(
        "{% for m in messages %}{{ m.content }}{{ m.reasoning_content }}{{ m.name }}{% endfor %}"
    )
    messages = [say("user", "hi", name="Ann"), say("assistant", "yo", reasoning="because")]
    assert template.render(messages).text == "hiAnnyobecause"


@pytest.mark.parametrize("text", ["Sure, the list is:", "ends with space ", " \n", "<|im_end|>", "é"])
def test_the_last_message_is_continued_without_an_end(chatml: ChatTemplate, text: str) -> None:
    rendered = chatml.render([say("user", "hi"), say("assistant", text)], continue_final_message=True)
    assert rendered.text == turn("user", "hi") + OPENING + text


def test_a_message_that_the_template_leaves_out_is_continued_after_the_opening() -> None:
    source = CHATML.replace(
        "{% for message in messages %}", "{% for message in messages if message.role == 'user' %}"
    )
    rendered = make_template(source).render(
        [say("user", "hi"), say("assistant", "Su")], continue_final_message=True
    )
    assert rendered.text == turn("user", "hi") + OPENING + "Su"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [say("user", "hi")],
        [say("user", "hi"), Message("assistant", tool_calls=(ToolCall("c", "put", "{}"),))],
    ],
)
def test_only_text_of_the_assistant_can_be_continued(messages: list[Message]) -> None:
    with pytest.raises(InvalidRequestError, match="continued"):
        make_template(CALLS).render(messages, continue_final_message=True)


def test_borders_are_where_messages_end(chatml: ChatTemplate) -> None:
    messages = [say("system", "be"), say("user", "hi"), say("assistant", "yo\n"), say("user", "more")]
    rendered = chatml.render(messages)
    prefixes = [chatml.render(messages[:n], add_generation_prompt=False).text for n in range(1, 5)]
    assert [rendered.text[:border] for border in rendered.borders] == prefixes
    ids, borders = encode_prompt(TOKENIZER, rendered)
    assert [TOKENIZER.decode(ids[:b], skip_special_tokens=False) for b in borders] == prefixes


def test_a_template_that_changes_its_text_round_the_marks_has_no_borders() -> None:
    template = make_template("{% for m in messages %}{{ m.content | length }}{{ m.content }}{% endfor %}")
    rendered = template.render([say("user", "hi")])
    assert (rendered.text, rendered.borders) == ("2hi", ())


def test_the_beginning_token_is_not_doubled(chatml: ChatTemplate, strict: ChatTemplate) -> None:
    tokenizer = ByteTokenizer(adds_bos=True)
    for template, plain_first in ((chatml, False), (strict, True)):
        rendered = template.render([say("user", "hi")])
        ids, borders = encode_prompt(tokenizer, rendered)
        assert ids.count(tokenizer.bos_token_id) == 1
        assert ids[0] == tokenizer.bos_token_id
        bare_ids, bare_borders = encode_prompt(TOKENIZER, rendered)
        assert (ids == bare_ids) == plain_first
        assert [b - len(ids) for b in borders] == [b - len(bare_ids) for b in bare_borders]


def test_further_variables_reach_the_template() -> None:
    template = make_template(
        "{{ messages[0].content }}{% if enable_thinking %}T{% endif %}{{ strftime_now('%%') }}"
    )
    assert template.render([say("user", "x")], kwargs={"enable_thinking": True}).text == "xT%"
    for name in ("messages", "bos_token", "chat_template"):
        with pytest.raises(InvalidRequestError, match=name):
            template.render([say("user", "x")], kwargs={name: "x"})
    with pytest.raises(InvalidRequestError, match="must be a JSON value"):
        template.render([say("user", "x")], kwargs={"when": object()})


def test_the_conventions_of_published_templates() -> None:
    template = make_template(
        "{%- for i in range(9) %}\n    {%- if i == 2 %}{% break %}{% endif %}\n{{ i }}\n{%- endfor %}\n"
        "{% generation %}{{ {'é': '<&>'} | tojson }}{% endgeneration %}\n"
        "    {% set seen = [] %}\n{% set _ = seen.append(1) %}{{ seen | length }}{{ messages[0].content }}"
    )
    assert template.render([say("user", "x")]).text == '01{"é": "<&>"}1x'


def test_what_the_template_refuses_is_the_requests_fault() -> None:
    template = make_template(
        "{% if messages[0].content == 'no' %}{{ raise_exception('never no') }}{% endif %}"
        "{% if messages[0].content == 'bug' %}{{ 1 + 'x' }}{% endif %}{{ messages[0].content }}"
    )
    for text, message in (("no", "never no"), ("bug", "TypeError")):
        with pytest.raises(InvalidRequestError, match=message) as caught:
            template.render([say("user", text)])
        assert caught.value.param == "messages"
    with pytest.raises(InvalidRequestError, match=r"messages\[3\]\.role is 'banana'"):
        template.render([Message("banana", index=3)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "source",
    ["{{ x(", "{% for %}", "{{ nonsense() }}", "{{ raise_exception('always') }}", "no messages here", ""],
)
def test_a_broken_template_is_refused_when_loaded(source: str) -> None:
    with pytest.raises(ModelError, match="chat template"):
        make_template(source)


def test_tests_of_the_room_do_not_run_templates_in_this_process() -> None:
    import sys

    code = (Path(__file__).parents[2] / "src/edgewise/chat/template.py").read_text()
    assert "jinja2" not in code.replace("jinja2 sandbox", "")
    assert "edgewise.chat.sandbox" in sys.modules  # for its constants; jinja2 comes with a template only
