"""Values and trouble: types by the schema, markers inside values, malformed and cut calls, ids. Each was somebody's bug once."""

from __future__ import annotations

import json

import pytest

from edgewise.chat.dialects import CallEnd, CallStart, dialect, names
from edgewise.chat.dialects.table import DIALECTS
from edgewise.core.chat import ToolCall, ToolChoice, ToolDefinition
from edgewise.core.errors import ConfigError
from edgewise.core.grammar import Json
from tests.chat.dialects.support import Call, Outcome, parse, tool

TYPED = tool(
    "set",
    {
        "on": {"type": "boolean"},
        "tries": {"$ref": "#/$defs/count"},
        "code": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"type": ["integer", "string"]},
        "level": {"enum": [1, 2]},
    },
    **{"$defs": {"count": {"type": "integer"}}},
)
PUT = tool("put", {"path": {"type": "string"}, "text": {"type": "string"}, "n": {"type": "integer"}})

TAGGED = {
    "qwen3_coder": (
        "<tool_call>\n<function={}>\n",
        "<parameter={}>\n{}\n</parameter>\n",
        "</function>\n</tool_call>",
    ),
    "glm47": ("<tool_call>{}\n", "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n", "</tool_call>"),
    "minimax_m2": (
        '<minimax:tool_call>\n<invoke name="{}">\n',
        '<parameter name="{}">{}</parameter>\n',
        "</invoke>\n</minimax:tool_call>",
    ),
    "seed_oss": (
        "<seed:tool_call>\n<function={}>\n",
        "<parameter={}>{}</parameter>\n",
        "</function>\n</seed:tool_call>",
    ),
    "minimax_m3": (
        ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="{}">',
        "]<]minimax[>[<{0}>{1}]<]minimax[>[</{0}>",
        "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    ),
}


def tagged(name: str, function: str, *pairs: tuple[str, str]) -> str:
    head, parameter, tail = TAGGED[name]
    return head.format(function) + "".join(parameter.format(*pair) for pair in pairs) + tail


def one(outcome: Outcome) -> Call:
    assert len(outcome.calls) == 1
    return outcome.calls[0]


@pytest.mark.parametrize("name", TAGGED)
@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("on", "true", True),
        ("on", "False", False),
        ("tries", "3", 3),
        ("code", "007", "007"),
        ("code", "true", "true"),
        ("code", '"quoted"', '"quoted"'),
        ("tags", '["a", "é"]', ["a", "é"]),
        ("note", "null", None),
        ("note", "nullable", "nullable"),
        ("either", "12", 12),
        ("either", "12a", "12a"),
        ("level", "2", 2),
        ("unknown", '{"a": 1}', {"a": 1}),
        ("unknown", "plain", "plain"),
    ],
)
def test_plain_values_are_typed_by_the_schema(name: str, key: str, text: str, value: object):
    written = tagged(name, "set", (key, text))
    assert one(parse(dialect(name), [TYPED], [written])).arguments == {key: value}
    assert one(parse(dialect(name), [TYPED], written)).arguments == {key: value}


@pytest.mark.parametrize("name", ["qwen3_coder", "glm47", "minimax_m2", "seed_oss"])
def test_a_value_may_hold_its_closing_tag(name: str):
    parameter = TAGGED[name][1]
    closer = parameter.split("{}")[2].strip()
    value = f"Write {closer} to end it,\n{closer}\nor {closer} twice, </tool_call> and </think> too."
    call = one(parse(dialect(name), [PUT], tagged(name, "put", ("text", value), ("n", "1"))))
    assert call.arguments == {"text": value, "n": 1}
    assert call.complete


def test_a_value_that_holds_the_whole_end_is_visibly_cut():
    value = "before\n</parameter>\n</function>\nafter"
    outcome = parse(dialect("qwen3_coder"), [PUT], tagged("qwen3_coder", "put", ("text", value)))
    assert one(outcome).complete is False
    assert one(outcome).arguments == {"text": "before"}
    assert "after" in outcome.content


@pytest.mark.parametrize("name", names())
def test_beyond_ascii_stays_as_it_is(name: str):
    text = dialect(name).render([ToolCall("", "put", {"text": "Zürich 東京 🙂"})])
    call = one(parse(dialect(name), [PUT], text))
    assert "Zürich 東京 🙂" in call.text
    assert call.text.count("Zürich") == 1


def test_parameters_named_across_a_line_break_are_understood():
    outcome = parse(
        dialect("qwen3_coder"),
        [tool("run", {"cmd": {"type": "string"}})],
        ["<function=run><parameter=\ncmd>ls</parameter></function>"],
    )
    assert one(outcome).arguments == {"cmd": "ls"}


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ('{"text": "a\nb"}', {"text": "a\nb"}),
        ('{"text": "x",}', {"text": "x"}),
        ("{'text': 'it\\'s'}", {"text": "it's"}),
        ('{"n": True, "text": None}', {"n": True, "text": None}),
        ('"{\\"n\\": 1}"', {"n": 1}),
        ("null", {}),
        ('{"text": "\\d+"}', {"text": "\\d+"}),
        ('{"n": 007}', {"n": 7}),
    ],
)
def test_nearly_json_arguments_are_mended(arguments: str, value: object):
    text = f'<tool_call>\n{{"name": "put", "arguments": {arguments}}}\n</tool_call>'
    outcome = parse(dialect("hermes"), [PUT], [text])
    assert one(outcome).arguments == value
    assert one(outcome).complete
    assert parse(dialect("hermes"), [PUT], text) == outcome


def test_well_formed_arguments_pass_through_letter_by_letter():
    arguments = '{ "text" :"a\\u00e9\\/\\n", "n":1.50e+2 , "x": [ ] }'
    outcome = parse(
        dialect("hermes"), [PUT], f'<tool_call>{{"name":"put","arguments":{arguments}}}</tool_call>'
    )
    assert one(outcome).text == arguments


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "put", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "other", "arguments": {"a": "<tool_call>"}}</tool_call> and more',
        "<tool_call>{name}</tool_call>",
        "<tool_call>",
        "a < b and <tool_cal",
        "<tool_call>\n\n</tool_call>\n",
    ],
)
def test_what_is_no_call_comes_back_word_for_word(text: str):
    for chunks in ([text], text):
        outcome = parse(dialect("hermes"), [PUT], chunks)
        assert (outcome.content, outcome.calls) == (text, [])


def test_garbage_in_arguments_is_given_back_and_the_call_marked():
    outcome = parse(
        dialect("hermes"), [PUT], '<tool_call>{"name": "put", "arguments": {"n": 1, "text": @@}}</tool_call>'
    )
    assert one(outcome).arguments == {"n": 1}
    assert one(outcome).complete is False
    assert outcome.content == ', "text": @@}}</tool_call>'


def test_a_missing_brace_and_a_missing_end_are_forgiven():
    brace = parse(
        dialect("hermes"), [PUT], '<tool_call>\n{"name": "put", "arguments": {"n": 1}\n</tool_call>'
    )
    assert (one(brace).arguments, one(brace).complete, brace.content) == ({"n": 1}, True, "")
    end = parse(dialect("hermes"), [PUT], '<tool_call>\n{"name": "put", "arguments": {"n": 1}}')
    assert (one(end).arguments, one(end).complete) == ({"n": 1}, True)


def test_arguments_may_come_before_the_name():
    outcome = parse(
        dialect("hermes"), [PUT], '<tool_call>{"arguments": {"n": 1}, "id": 3, "name": "put"}</tool_call>'
    )
    assert one(outcome).arguments == {"n": 1}


def test_text_around_calls_keeps_its_place_and_loses_only_the_space_beside_them():
    text = 'First.\n\n<tool_call>{"name": "put", "arguments": {}}</tool_call>\nThen <b>more</b>.\n'
    outcome = parse(dialect("hermes"), [PUT], text)
    assert outcome.order == ["First.", 0, "\nThen <b>more</b>.\n"]


def test_a_json_answer_is_no_call_where_calls_are_bare_json():
    for text in (
        '{"name": "put", "age": 3}',
        '{"city": "Oslo"}',
        "[1, 2]",
        '{"name": "x", "parameters": {}}',
    ):
        outcome = parse(dialect("llama3_json"), [PUT], text)
        assert (outcome.content, outcome.calls) == (text, [])


def test_a_list_is_no_call_where_calls_are_bare_lists():
    for text in ("[link](https://example.org) here", "[put] it", "[1, 2, 3]", "[other(a=1)]"):
        assert parse(dialect("pythonic"), [PUT], text).content == text


def test_python_literals_become_json():
    text = "[put(text=\"it's\", path='''a\nb''', n=-1), put(text='\\x41\\u00e9\\'', extra={'a': (1, None), 'b': True})]"
    outcome = parse(dialect("pythonic"), [PUT], text)
    assert [call.arguments for call in outcome.calls] == [
        {"text": "it's", "path": "a\nb", "n": -1},
        {"text": "Aé'", "extra": {"a": [1, None], "b": True}},
    ]


def test_positional_arguments_take_the_schema_s_order():
    assert one(parse(dialect("pythonic"), [PUT], "[put('a', text='b')]")).arguments == {
        "path": "a",
        "text": "b",
    }


def test_ids_are_the_models_where_it_writes_them_and_never_used_twice():
    kimi = "<|tool_call_begin|>functions.put:{}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    section = "<|tool_calls_section_begin|>{}<|tool_calls_section_end|>"
    outcome = parse(dialect("kimi_k2"), [PUT], section.format("".join(kimi.format(n) for n in (4, 5, 5))))
    assert [call.id for call in outcome.calls] == ["functions.put:4", "functions.put:5", "call-0"]
    mistral = parse(
        dialect("mistral"), [PUT], '[TOOL_CALLS] [{"name": "put", "arguments": {}, "id": "abcdefghi"}]'
    )
    assert [call.id for call in mistral.calls] == ["call-0"]  # the call began before its id was read
    named = parse(dialect("mistral"), [PUT], "[TOOL_CALLS]put[CALL_ID]abcdefghi[ARGS]{}")
    assert [call.id for call in named.calls] == ["abcdefghi"]


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.put <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.put<|message|>",
        "<|channel|>analysis to=functions.put code<|message|>",
        " to=functions.put<|channel|>commentary <|constrain|>json<|message|>",
        "<|start|>assistant to=functions.put<|channel|>commentary json<|message|>",
        "<|start|>assistant<|channel|>commentary to=functions.put <|constrain|>json<|message|>",
    ],
)
def test_harmony_headers_in_every_order(header: str):
    outcome = parse(dialect("openai"), [PUT], header + '{"n": 1}<|call|>')
    assert (one(outcome).arguments, outcome.content) == ({"n": 1}, "")


def test_harmony_channels_leave_only_their_text():
    text = "<|channel|>commentary<|message|>Looking.<|end|><|start|>assistant<|channel|>final<|message|>It is 3.<|return|>"
    assert parse(dialect("openai"), [PUT], text).content == "Looking.It is 3."


def test_a_call_is_reported_before_its_arguments_and_ended_only_when_it_is_whole():
    parser = dialect("hermes").parser([PUT], new_id=lambda: "c1")
    assert parser.push('<tool_call>\n{"name": "put", "arguments"') == []
    assert parser.push(': {"n"')[0] == CallStart("c1", "put")
    assert parser.push(": 1}}\n")[-1] != CallEnd()
    assert parser.push("</tool_call>") == [CallEnd()]
    assert parser.finish() == []


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ConfigError, match=r"hermes.*qwen3_coder"):
        dialect("nope")


def test_every_name_that_other_servers_know_is_known():
    known = """hermes qwen3 deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 longcat mistral granite granite4 granite-20b-fc
    llama3_json llama4_json pythonic llama4_pythonic xlam phi4_mini_json internlm jamba step3 step3p5 qwen3_coder qwen3_xml mimo olmo3
    minicpm5 hy_v3 hunyuan_a13b apertus ernie45 gigachat3 lfm2 poolside_v1 functiongemma kimi_k2 glm45 glm47 minimax_m2 gemma4 seed_oss
    openai cohere_command kimi_k3 minimax_m3 solar_open2 muse_glimmer"""
    assert set(known.split()) <= set(names())
    assert len(names()) == len({*names()}) >= 46


@pytest.mark.parametrize("each", DIALECTS, ids=[each.name for each in DIALECTS])
def test_instructions_show_the_form_and_every_tool(each):
    text = each.instructions([PUT, TYPED])
    assert '"name": "put"' in text
    assert '"name": "set"' in text
    assert each.forms[0].marker.strip() in text


def test_schemas_are_named_by_their_place_and_strictness():
    strict = ToolDefinition("put", "", {"type": "object"}, strict=True, path="tools[3].function")
    rule = dialect("hermes").forced([strict], ToolChoice("required"))
    assert Json({"type": "object"}, path="tools[3].function.parameters", strict=True) in [*rules_in(rule)]


def test_a_custom_tool_takes_text_its_pattern_allows():
    custom = ToolDefinition(
        "patch",
        "",
        None,
        kind="custom",
        custom_format={"type": "grammar", "syntax": "regex", "definition": "a|b"},
    )
    rule = next(
        each
        for each in rules_in(dialect("hermes").forced([custom], ToolChoice("required")))
        if isinstance(each, Json)
    )
    assert isinstance(rule.schema, dict)
    assert rule.schema["properties"]["input"]["pattern"] == "^(?:a|b)$"
    text = dialect("qwen3_coder").render([ToolCall("", "patch", {"input": "007\n</parameter>"})])
    assert one(parse(dialect("qwen3_coder"), [custom], text)).arguments == {"input": "007\n</parameter>"}


def rules_in(rule):
    yield rule
    for inner in (*getattr(rule, "rules", ()), getattr(rule, "rule", None)):
        if inner is not None:
            yield from rules_in(inner)


def test_arguments_of_wire_text_are_rendered_like_objects():
    call = {"path": "a", "n": 1}
    for each in DIALECTS:
        assert each.render([ToolCall("", "put", json.dumps(call))]) == each.render(
            [ToolCall("", "put", call)]
        )
