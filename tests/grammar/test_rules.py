"""Rules, free text and thinking, walked byte by byte: what may be written, and where an answer may end."""

from __future__ import annotations

import pytest

from edgewise.core.grammar import (
    Constraint,
    FreeText,
    Gbnf,
    Json,
    Lark,
    OneOf,
    RawText,
    Regex,
    Repeat,
    Sequence,
    Text,
    Thinking,
    Triggered,
)
from tests.grammar.walking import END, Walker
from tests.support.byte_tokenizer import ByteTokenizer

CITY = Json(
    {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
)
SIZE = Json({"type": "integer", "minimum": 0, "maximum": 99})


def call(name: str, arguments: Json) -> Sequence:
    return Sequence((Text('{"name": "' + name + '", "arguments": '), arguments, Text("}")))


CALLS = OneOf((call("web", CITY), call("website", SIZE)))
TAGGED = Triggered("<tool_call>", Sequence((Text("<tool_call>\n"), CALLS, Text("\n</tool_call>"))))
BARE = Triggered('{"name": "', CALLS, at_start=True)
GOOD = '<tool_call>\n{"name": "website", "arguments": 12}\n</tool_call>'
BARE_GOOD = '{"name": "web", "arguments": {"city": "Oslo"}}'


@pytest.fixture(scope="module")
def walker() -> Walker:
    return Walker()


@pytest.fixture(scope="module")
def marked() -> Walker:
    """A vocabulary with control tokens for a dialect's marks."""
    return Walker(
        ByteTokenizer(control_tokens=("</s>", "<tool_call>", "</tool_call>", "<think>", "</think>", "<box>"))
    )


@pytest.mark.parametrize(
    ("rule", "text", "found"),
    [
        (Text("yes"), "yes", "yes" + END),
        (Text("yes"), "yep", "ye"),
        (Text('ü"\\\n/'), 'ü"\\\n/', 'ü"\\\n/' + END),
        (OneOf((Text("yes"), Text("yes please"))), "yes", "yes" + END),
        (OneOf((Text("yes"), Text("yes please"))), "yes please", "yes please" + END),
        (OneOf(tuple(Text(f"word {n}") for n in range(300))), "word 299", "word 299" + END),
        (OneOf(tuple(Text(f"word {n}") for n in range(300))), "word 300", "word 30" + END),
        (Regex(r"^\d{2}-[a-z]+$"), "12-ab", "12-ab" + END),
        (Regex(r"a|b$"), "b", "b" + END),
        (Regex(r"a/b\$"), "a/b$", "a/b$" + END),
        (Repeat(Text("ab"), 1, 2), "ababab", "abab" + END),
        (Repeat(Text("a"), 2, None, Text(",")), "a,a,a", "a,a,a" + END),
        (Repeat(Text("a"), 0, 1, Text(",")), "", END),
        (Sequence((Regex("[a-z]+"), Text("bc"))), "abcbc", "abcbc" + END),
        (CITY, '{"city": "Oslo"}', '{"city": "Oslo"}' + END),
        (CITY, '{\n  "city" : "Oslo"\n}', '{\n  "city" : "Oslo"\n}' + END),
        (CITY, '{"city": "Paris"}', '{"city": "'),
        (CITY, '{"city":' + " " * 9, '{"city":  '),
        (Json(CITY.schema, compact=True), '{"city":"Rome"}', '{"city":"Rome"}' + END),
        (Json(CITY.schema, compact=True), '{"city": ', '{"city":'),
        (OneOf((CITY, SIZE)), "12", "12" + END),
        (OneOf((CITY, Json({"type": "object", "properties": {"x": True}, "required": ["x"]}))), '{"x": 1}', '{"x": 1}' + END),
        (Lark('start: "a" B\nB: /[0-9]+/'), "a12", "a12" + END),
        (Gbnf('root ::= "a" num\nnum ::= [0-9]+'), "a12", "a12" + END),
        (Sequence((Text("<"), Gbnf('root ::= "a"+'), Text(">"))), "<aa>", "<aa>" + END),
    ],
)  # fmt: skip
def test_a_rule_allows_its_texts_and_no_others(walker, rule, text, found):
    assert walker.walk(rule, text) == found


@pytest.mark.parametrize(
    ("after", "text", "found"),
    [
        ((Text("</p>"),), "a</p>", "a</p>" + END),
        ((Text("\n</p>x"),), "a </ \n\n</p>x", "a </ \n\n</p>x" + END),
        ((Text("</p>"),), "a</q></p>", "a</q></p>" + END),
        ((Text("</p>"),), "a</p>b", "a</p>" + END),
        ((Repeat(Text("\n"), 0, 1), Text("</p>"), SIZE), "a</p>7", "a</p>7" + END),
        ((Repeat(Text("\n"), 0, 1), Text("</p>"), SIZE), "a\n</p>7", "a\n</p>7" + END),
        ((OneOf((Text("</p>1"), Text("</p>22"))),), "</</p>22", "</</p>22" + END),
        ((), "a</p", "a</p" + END),
        ((), "a</p>", "a</p" + END),
    ],
)
def test_raw_text_ends_at_its_mark_and_nowhere_else(walker, after, text, found):
    assert walker.walk(Sequence((RawText(("</p>",)), *after)), text) == found


def test_texts_that_share_a_beginning_keep_all_their_ends(walker):
    """Every path through optional parts stays open, where a greedy lexer would forget the shorter texts."""

    def given(name: str, end: str) -> Sequence:
        return Sequence((Text(f"{name}>"), SIZE, Text(f"/{end}")))

    rule = Sequence(
        (
            Text("<"),
            OneOf(
                (
                    given("a", "end"),
                    Sequence((Repeat(given("a", "more:"), 0, 1), OneOf((given("b", "end"), Sequence((Repeat(given("b", "more:"), 0, 1), given("c", "end"))))))),
                )
            ),
        )
    )  # fmt: skip
    for text in (
        "<a>1/end",
        "<b>1/end",
        "<a>1/more:b>2/end",
        "<a>1/more:b>2/more:c>3/end",
        "<a>1/more:c>3/end",
        "<c>1/end",
    ):
        assert walker.walk(rule, text) == text + END


@pytest.mark.parametrize("spelled", [True, False])
def test_free_text_binds_from_a_trigger_on(walker, marked, spelled):
    walker = walker if spelled else marked
    free = FreeText((TAGGED,))
    for text in ("Hello <tool", f"a{GOOD}b", f"{GOOD}{GOOD}", "<tool_cal"):
        assert walker.walk(free, text) == text + END
    assert walker.walk(free, 'so: <tool_call>\n{"name": "wet') == 'so: <tool_call>\n{"name": "we'
    assert walker.walk(free, "<tool_call> ") == "<tool_call>"


def test_a_control_token_s_spelling_binds_too(marked):
    """Parsers read text: a call spelled in pieces would be one."""
    ids = [*b"a<tool_call>", *b"\nx"]
    assert marked.walk_tokens(marked.make(FreeText((TAGGED,))), ids) == "a<tool_call>\n"


@pytest.mark.parametrize(
    ("most", "text", "found"),
    [
        (0, "a<tool_call>", f"a<tool_call{END}"),
        (1, f"a{GOOD}b", f"a{GOOD}{END}"),
        (2, f"a{GOOD}b{GOOD}c", f"a{GOOD}b{GOOD}{END}"),
        (None, f"a{GOOD}b{GOOD}c", f"a{GOOD}b{GOOD}c{END}"),
        (1, "abc", "abc" + END),
        (2, f"a{GOOD}b", f"a{GOOD}b{END}"),
    ],
)
def test_the_number_of_regions_is_bounded(walker, most, text, found):
    assert walker.walk(FreeText((TAGGED,), max_regions=most), text) == found


@pytest.mark.parametrize("most", [None, 0, 1, 2])
def test_bare_calls_bind_at_the_start_only(walker, most):
    free = FreeText((TAGGED, BARE), max_regions=most)
    for text in ('{"nam', '{"name": 3}', f"x {BARE_GOOD}", 'x {"name": "foo"}'):
        assert walker.walk(free, text) == text + END
    expected = '{"name": ' + END if most == 0 else '{"name": "we'
    assert walker.walk(free, '{"name": "wet"') == expected
    for text in (BARE_GOOD, f" \n{BARE_GOOD}"):
        assert (walker.walk(free, text) == text + END) is (most != 0)
    both = f"{BARE_GOOD} and {GOOD}"
    assert (walker.walk(free, both) == both + END) is (most in (None, 2))


def test_banned_texts_cannot_be_written(walker, marked):
    free = FreeText(max_regions=0, banned=("<tool_call>", "[CALL]"))
    assert walker.walk(free, "a <tool_call> b") == "a <tool_call" + END
    assert marked.walk(free, "a <tool_call> b") == "a " + END
    assert marked.walk_tokens(marked.make(free), b"<tool_call>") == "<tool_call" + END
    assert walker.walk(free, "a [CALL]") == "a [CALL" + END


def test_a_trigger_of_a_control_token_and_text(marked):
    rule = Sequence((Text("<box>call:"), Regex("[a-z]+"), Text(";")))
    free = FreeText((Triggered("<box>call:", rule),))
    for text in ("a<box>b", "a<box>call:abc;x", "<box>cal<box>call:a;", "<think>call:3"):
        assert marked.walk(free, text) == text + END
    assert marked.walk(free, "a<box>call:3") == "a<box>call:"
    assert (
        marked.walk(FreeText((Triggered("<box>call:", rule),), max_regions=0), "<box>call:a")
        == "<box>call" + END
    )


def test_a_trigger_that_begins_another(walker):
    """The shorter binds first; what the longer would allow is allowed after it."""
    short = Triggered("<f", Sequence((Text("<f1>"), SIZE)))
    long = Triggered("<f2", Sequence((Text("<f2>"), CITY)))
    free = FreeText((long, short))
    assert walker.walk(free, "a<f1>3") == "a<f1>3" + END
    assert walker.walk(free, 'a<f2>{"city": "Rome"}') == 'a<f2>{"city": "Rome"}' + END
    assert walker.walk(free, "a<f3") == "a<f"


def test_a_rule_that_does_not_begin_with_its_trigger_is_our_mistake(walker):
    with pytest.raises(ValueError, match="does not begin"):
        walker.make(FreeText((Triggered("<a>", Text("<b>")),)))


@pytest.mark.parametrize("spelled", [True, False])
@pytest.mark.parametrize("already_open", [True, False])
def test_thinking_comes_first(walker, marked, spelled, already_open):
    walker = walker if spelled else marked
    thinking = Thinking("<think>", "</think>", already_open)
    start = "" if already_open else "<think>"
    answer = '{"city": "Oslo"}'
    for between in ("", "\n\n"):
        text = f"{start}hm, {{ <tool_call> ?</think>{between}{answer}"
        assert walker.walk(Constraint(CITY, thinking), text) == text + END
    assert walker.walk(Constraint(CITY, thinking), f"{start}a</think>x") == f"{start}a</think>"
    if not already_open:
        assert walker.walk(Constraint(CITY, thinking), answer) == answer + END
        assert walker.walk(Constraint(CITY, thinking), "hm") == ""


@pytest.mark.parametrize("spelled", [True, False])
@pytest.mark.parametrize("already_open", [True, False])
def test_thinking_before_free_text(walker, marked, spelled, already_open):
    """A call thought of is no call; after the thinking one is, also a bare one."""
    walker = walker if spelled else marked
    thinking = Thinking("<think>", "</think>", already_open)
    constraint = Constraint(FreeText((TAGGED, BARE)), thinking)
    start = "" if already_open else " <think>"
    for text in (f"{start}<tool_call> no</think>ok {GOOD}", f"{start}x</think>\n{BARE_GOOD}"):
        assert walker.walk(constraint, text) == text + END
    assert walker.walk(constraint, f"{start}x</think>\n<tool_call> ") == f"{start}x</think>\n<tool_call>"
    if not already_open:
        assert walker.walk(constraint, f"no {GOOD}") == f"no {GOOD}" + END
        assert walker.walk(constraint, "<tool_call> ") == "<tool_call>"


@pytest.mark.parametrize("already_open", [True, False])
@pytest.mark.parametrize("budget", [0, 5])
def test_a_thinking_budget_forces_the_closing_text(marked, already_open, budget):
    thinking = Thinking(
        "<think>", "</think>", already_open, budget_tokens=budget, closing=" Enough.</think>\n"
    )
    constraint = marked.make(Constraint(CITY, thinking))
    written = [] if already_open else marked.tokenizer.encode("<think>", parse_special=True)
    for token in [*written, *b"abcdefgh"[:budget]]:
        assert not constraint.forced()
        assert not constraint.accept(token)
    closing = constraint.forced()
    assert marked.text(closing) == " Enough.</think>\n"
    for token in closing:
        constraint.accept(token)
    assert marked.walk_tokens(constraint, b'{"city": "Rome"}') == '{"city": "Rome"}' + END


def test_a_budget_does_not_touch_an_answer_that_does_not_think(marked):
    thinking = Thinking("<think>", "</think>", False, budget_tokens=1, closing="</think>")
    text = "<thing> is not thinking"
    assert marked.walk(Constraint(FreeText(), thinking), text) == text + END


def test_a_budget_waits_for_the_end_of_a_character(walker):
    thinking = Thinking("<think>", "</think>", True, budget_tokens=1, closing="</think>")
    constraint = walker.make(Constraint(FreeText(), thinking))
    first, last = "é".encode()
    constraint.accept(first)
    assert not constraint.forced()
    constraint.accept(last)
    assert walker.text(constraint.forced()) == "</think>"


def test_a_fork_goes_its_own_way(walker):
    constraint = walker.make(OneOf((Text("aX"), Text("bY"))))
    twin = constraint.fork()
    constraint.accept(ord("a"))
    twin.accept(ord("b"))
    assert constraint.forced() == [ord("X")] and twin.forced() == [ord("Y")]


def test_padding_of_the_vocabulary_is_never_allowed():
    walker = Walker(vocab_size=300)
    mask = walker.make(FreeText()).mask()
    assert mask is not None and mask.shape == (10,)
    padding = walker.tokenizer.vocab_size
    assert not any(mask[i // 32] >> (i % 32) & 1 for i in range(padding, 320))


def test_a_vocabulary_without_an_end():
    walker = Walker(ByteTokenizer(control_tokens=()))
    mask = walker.make(Text("ab")).mask()
    assert mask is not None and mask.shape == (8,)
    assert walker.walk(Text("ab"), "ab") == "ab" + END
