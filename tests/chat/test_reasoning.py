"""Reasoning dialects: every published shape of thinking, cut anywhere, starts where the prompt says it does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.chat.reasoning import reasoning_dialect, reasoning_names
from edgewise.core.chat import ReasoningOptions
from edgewise.core.errors import ConfigError
from edgewise.core.grammar import Json, Repeat, Sequence, Text
from tests.chat.splitting import split
from tests.support.examples import examples
from tests.support.shared import SHARED, shared_data

CASES_PATH = SHARED / "data" / "dialects" / "reasoning_cases.jsonl"
CASES: list[dict[str, Any]] = (
    [json.loads(line) for line in CASES_PATH.read_text().splitlines()] if CASES_PATH.exists() else []
)
NAMES = [(case, name) for case in CASES for name in (case["dialect"], *case.get("also", ()))]


@pytest.mark.parametrize(("case", "name"), NAMES, ids=[f"{case['id']}-{name}" for case, name in NAMES])
def test_published_cases_in_any_pieces(case: dict[str, Any], name: str) -> None:
    dialect, text = reasoning_dialect(name), case["text"]
    is_open = dialect.is_open("<|im_start|>user\n<think> of x<|im_end|>\n" + case["prompt_tail"])
    whole = split(dialect.splitter(is_open), [text])
    assert (whole[0].strip(), whole[1].strip()) == (case["reasoning"], case["content"])
    for pieces in (list(text), *([text[:i], text[i:]] for i in range(len(text)))):
        assert split(dialect.splitter(is_open), pieces) == whole


def test_the_cases_are_there() -> None:
    shared_data("dialects/reasoning_cases.jsonl")
    assert len(CASES) == 58


PIECES = st.lists(
    st.sampled_from(
        [
            "<think>",
            "</think>",
            "<th",
            "ink>",
            "</",
            "<",
            "\n",
            " ",
            "a",
            "[THINK]",
            "<|end|>",
            "<|start|>assistant",
            "<|channel|>analysis<|message|>",
            "<|channel|>final<|message|>",
            "<answer>",
            "</answer>",
            "<tool_calls>",
            "<response>",
            "\n</response>\n",
            "Here is my thought process:",
            "Here's my response:",
            " to=self<|message|>",
        ]
    )
    | st.text(max_size=3),
    max_size=12,
)


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(reasoning_names()), PIECES, st.booleans())
def test_any_cut_gives_the_same_and_only_marks_are_lost(name: str, pieces: list[str], is_open: bool) -> None:
    dialect = reasoning_dialect(name)
    text = "".join(pieces)
    whole = split(dialect.splitter(is_open), [text])
    assert split(dialect.splitter(is_open), pieces) == whole
    assert split(dialect.splitter(is_open), list(text)) == whole
    if not dialect.as_content:
        kept = sorted((whole[0] + whole[1]).replace("\n", ""))
        assert all(kept.count(char) <= text.count(char) for char in set(kept))
    marks = [mark for mark in (*dialect.markers, dialect.start, dialect.end) if mark in text]
    if not marks and not is_open:
        assert whole == ("", text)


@pytest.mark.parametrize(
    ("name", "prompt", "is_open"),
    [
        ("think_auto", "<|im_start|>assistant\n", False),
        ("think_auto", "<|im_start|>assistant\n<think>\n", True),
        ("think_auto", "<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("think_auto", "<|im_start|>user\nwhat is <think>?<|im_end|>\n<|im_start|>assistant\n", False),
        ("openai_gptoss", "<|start|>assistant", False),
        ("openai_gptoss", "<|start|>assistant<|channel|>analysis<|message|>", True),
        ("kimi_k3", "<|open|>response<|sep|>", False),
        ("gemma4", "<|turn>model\n<|channel>thought\n<channel|>", False),
        ("mistral", "[/INST][THINK]", True),
        ("granite", "<|end_of_role|>Here's my thought process:", True),
    ],
)
def test_the_prompt_says_where_an_answer_begins(name: str, prompt: str, is_open: bool) -> None:
    assert reasoning_dialect(name).is_open(prompt) is is_open


def test_a_continued_turn_may_end_inside_a_thought() -> None:
    dialect = reasoning_dialect("qwen3")
    assert dialect.is_open("...<think>\nhm", continued="<think>\nhm")
    assert not dialect.is_open("...<think>\nhm</think>Sure", continued="<think>\nhm</think>Sure")


@pytest.mark.parametrize(
    ("name", "is_open", "text", "expected"),
    [
        ("think_auto", False, "  Hello\n", ("", "  Hello\n")),
        ("think_auto", False, "\n\n", ("", "\n\n")),
        ("think_auto", False, "a <think>b</think>", ("", "a <think>b</think>")),
        ("think_auto", False, "</think>\n\nHi", ("", "Hi")),
        ("think_auto", True, "half a thou", ("half a thou", "")),
        ("think_auto", True, "  deep\n \nthought \n</think>", ("  deep\n \nthought ", "")),
        ("think_auto", True, "<think>\na</think>b</think>", ("a", "b</think>")),
        ("think_auto", True, "a <think> b</think>c", ("a <think> b", "c")),
        ("think_auto", True, "\n</think>\n\n\n  indented", ("", "  indented")),
        ("kimi_k2", True, "hm <|tool_calls_section_begin|>x", ("hm ", "<|tool_calls_section_begin|>x")),
        ("hunyuan_a13b", False, "no tags </answer>", ("", "no tags </answer>")),
        ("openai_gptoss", False, "plain answer", ("", "plain answer")),
        (
            "openai_gptoss",
            False,
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
            "<|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>final<|message|>c",
            ("ab", "I look.c"),
        ),
        (
            "openai_gptoss",
            False,
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{}",
            ("a", "<|start|>assistant<|channel|>commentary to=functions.f<|message|>{}"),
        ),
    ],
)
def test_edges(name: str, is_open: bool, text: str, expected: tuple[str, str]) -> None:
    assert split(reasoning_dialect(name).splitter(is_open), [text]) == expected
    assert split(reasoning_dialect(name).splitter(is_open), list(text)) == expected


def test_inside_a_call_nothing_is_a_mark() -> None:
    splitter = reasoning_dialect("openai_gptoss").splitter(False)
    seen = ""
    splitter.busy = lambda: "{" in seen and "}" not in seen
    for char in 'x{"a": "<|end|><|channel|>analysis<|message|>"}<|end|>y':
        for kind, text in splitter.push(char):
            assert kind == "content"
            seen += text
    assert seen == 'x{"a": "<|end|><|channel|>analysis<|message|>"}y'


def test_what_a_grammar_lets_pass() -> None:
    thinking = reasoning_dialect("qwen3").constraint(True, ReasoningOptions(budget_tokens=7))
    assert (thinking.start, thinking.end, thinking.already_open) == ("<think>", "</think>", True)
    assert (thinking.budget_tokens, thinking.closing) == (7, "\n</think>")
    harmony = reasoning_dialect("openai_gptoss")
    assert harmony.constraint(False, ReasoningOptions()).end == "<|end|><|start|>assistant"
    rule = Json({"type": "object"})
    assert harmony.framed(rule, "") == Sequence((Text("<|channel|>final<|message|>"), rule))
    kimi = reasoning_dialect("kimi_k3")
    closing = Repeat(Text("<|close|>response<|sep|>"), 0, 1)
    assert kimi.framed(rule, "...<|open|>response<|sep|>") == Sequence((rule, closing))
    assert reasoning_dialect("qwen3").framed(rule, "") is rule


def test_unknown_names_are_refused_with_all_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"nonsense.*deepseek_r1.*qwen3"):
        reasoning_dialect("nonsense")
