"""GrammarCompiler: limits, errors, the cache, threads."""

from __future__ import annotations

import threading
import time

import pytest

from edgewise.core.errors import EdgewiseError, InvalidRequestError
from edgewise.core.grammar import Constraint, FreeText, Gbnf, Json, Lark, Regex, Sequence, Text
from edgewise.grammar import GrammarCompiler, GrammarLimits
from tests.grammar.walking import END, Walker, allowed
from tests.support.byte_tokenizer import ByteTokenizer


@pytest.fixture(scope="module")
def walker() -> Walker:
    return Walker()


def chain(length: int) -> str:
    rules = "\n".join(f"a{i}: a{i + 1}" for i in range(length))
    return f'start: a0\n{rules}\na{length}: "x"'


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (Regex("(" * 20_000), "20000 characters"),
        (Regex("(" * 101 + ")" * 101), "nested"),
        (Regex("a{9,2}"), "repetition"),
        (Regex("*"), "repetition"),
        (Regex("(?=a)b"), "look-around"),
        (Regex("a)(b"), "unopened"),
        (Lark("start: ("), "Expected"),
        (Lark("no grammar"), "Expected"),
        (Lark("start: nowhere"), "nowhere"),
        (Lark("start: " + "(" * 20_000), "nested"),
        (Lark(chain(4_000)), "rules"),
        (Lark("start: A\n" + "\n".join(f"A{i}: A{i + 1} A{i + 1}" for i in range(40)).replace("A0", "A", 1) + '\nA40: "x"'), "big|large|complex"),
        (Gbnf("root ::= nowhere"), "nowhere"),
        (Gbnf('root ::= ("a"'), r"\)"),
        (Gbnf("start ::= [0-9]"), "root"),
        (Gbnf("root ::= " + "(" * 5_000), "nested"),
        (Gbnf('root ::= "' + "a" * 2_000_000 + '"'), "bytes"),
        (Json(False), "no value"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_is_refused_with_the_reason_and_the_next_is_served(walker, rule, reason):
    started = time.perf_counter()
    with pytest.raises(InvalidRequestError, match=reason) as caught:
        walker.compiler.compile(Constraint(Sequence((Text("x"), rule)), param="guided"))
    assert caught.value.param
    assert len(caught.value.message) < 400
    assert time.perf_counter() - started < 10
    assert walker.walk(Regex("[ab]"), "a") == "a" + END


def test_rules_nested_without_end_are_refused(walker):
    rule = Text("x")
    for _ in range(200):
        rule = Sequence((rule, Text("y")))
    with pytest.raises(InvalidRequestError, match="nested"):
        walker.make(rule)


def test_schemas_nested_without_end_are_refused(walker):
    schema = {"type": "string"}
    for _ in range(5_000):
        schema = {"items": schema}
    with pytest.raises(InvalidRequestError, match="nested") as caught:
        walker.compiler.compile(Constraint(Json(schema), param="response_format"))
    assert caught.value.param == "response_format"


def test_a_grammar_that_grows_too_complex_fails_when_it_does():
    """Nothing can be wrong at the start: the bound on one step's work holds when the text gets there."""
    compiler = GrammarCompiler(ByteTokenizer(), limits=GrammarLimits(step_fuel=2_000))
    heavy = Regex("(.*a.{40}b){8}(x|y.*z.{30}){9}")
    constraint = compiler.compile(Constraint(Sequence((Lark('start: "ok"'), heavy)))).make()
    for token in b"ok":
        assert allowed(constraint) == [token]
        constraint.accept(token)
    with pytest.raises(EdgewiseError, match="the grammar failed"):
        for token in b"ab" * 200:
            constraint.mask()
            constraint.accept(token)


def test_equal_constraints_share_a_grammar(walker):
    def constraint() -> Constraint:
        return Constraint(Json({"type": "object", "properties": {"x": {"type": "integer"}}}))

    first = walker.compiler.compile(constraint())
    assert walker.compiler.compile(constraint()) is first
    turned = Constraint(Json({"properties": {"x": {"type": "integer"}}, "type": "object"}))
    assert walker.compiler.compile(turned) is not first


def test_the_cache_forgets_what_was_used_longest_ago():
    compiler = GrammarCompiler(ByteTokenizer(), cache_size=2)
    a, b, c = (Constraint(Text(text)) for text in "abc")
    first, second = compiler.compile(a), compiler.compile(b)
    compiler.compile(a)
    compiler.compile(c)
    assert compiler.compile(a) is first
    assert compiler.compile(b) is not second


def test_states_of_one_grammar_do_not_meet(walker):
    compiled = walker.compiler.compile(Constraint(Regex("[ab]c")))
    first, second = compiled.make(), compiled.make()
    first.accept(ord("a"))
    assert first.forced() == [ord("c")] and not second.forced()


def test_many_threads_compile_and_walk_at_once():
    compiler = GrammarCompiler(ByteTokenizer())
    faults: list[str] = []

    def work(number: int) -> None:
        for n in range(6):
            text = f"{number % 3}-{n}"
            constraint = compiler.compile(Constraint(Sequence((Text(text), Regex("[xy]"))))).make()
            for token in text.encode():
                if allowed(constraint) != [token]:
                    faults.append(text)
                constraint.accept(token)
            if allowed(constraint) != [ord("x"), ord("y")]:
                faults.append(text)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_free_text_allows_control_tokens_and_the_end(walker):
    special = walker.tokenizer.special_tokens
    found = allowed(walker.make(FreeText()))
    assert set(special.values()) <= set(found)
    assert all(byte in found for byte in b"aZ{\n\xc3") and 0xFF not in found
