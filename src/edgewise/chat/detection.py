"""Which dialects a model writes, read off its chat template.

The template is rendered with a call, and every dialect's parser reads what came out: the one that finds the call again, and whose writer
would write it so, is the model's. Where templates render no calls, or in no dialect's way, a table of what they say about calls
decides, in order. Thinking is found the same way: where the prompt opens it, how a turn's thinking is rendered, what the template says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from edgewise.chat import dialects
from edgewise.chat.dialects import ArgumentPiece, CallEnd, CallStart, ToolDialect
from edgewise.chat.reasoning import ReasoningDialect, reasoning_dialect, reasoning_names
from edgewise.chat.template import ChatTemplate
from edgewise.core.chat import Message, TextPart, ToolCall, ToolDefinition
from edgewise.core.errors import EdgewiseError

Arguments = dict[str, Any]

FALLBACK = "hermes"

# What a template says when it speaks of calls, the more special before what it may be part of.
TOOL_MARKS: tuple[tuple[str, str], ...] = (
    ("<atem:function_calls>", "muse_glimmer"),
    ("<longcat_tool_call>", "longcat"),
    ("<｜tool▁calls▁begin｜>", "deepseek_v3"),
    ("<｜DSML｜function_calls>", "deepseek_v32"),
    ("<｜DSML｜tool_calls>", "deepseek_v4"),
    ("｜DSML｜", "deepseek_v4"),
    ("<｜tool_calls_begin｜>", "step3"),
    ("<|channel|>commentary", "openai"),
    ("[TOOL_CALLS]", "mistral"),
    ('<function name="', "minicpm5"),
    ("<function_calls>", "olmo3"),
    ("<function_call>", "granite-20b-fc"),
    ("<|tool_call|>", "granite"),
    ("<|action_start|><|plugin|>", "internlm"),
    ("functools[", "phi4_mini_json"),
    ("<|python_start|>", "llama4_pythonic"),
    ("<|python_tag|>", "llama3_json"),
    ('{"name": function name, "parameters":', "llama3_json"),
    ("<|tool_call_start|>", "lfm2"),
    ("<|tool_list_start|>", "lfm2"),
    ("<start_function_call>", "functiongemma"),
    ("<|tools_prefix|>", "apertus"),
    ("<|function_call|>", "gigachat3"),
    ("<|tool_calls_section_begin|>", "kimi_k2"),
    ("<minimax:tool_call>", "minimax_m2"),
    ("]<]minimax[>[", "minimax_m3"),
    ("<|tool_call>call:", "gemma4"),
    ("<seed:tool_call>", "seed_oss"),
    ("<|START_ACTION|>", "cohere_command3"),
    ("<|tool_call:start|>", "solar_open2"),
    ("<TOOLCALL>", "nemotron_json"),
    ("<tool_sep", "hy_v3"),
    ("</assistant>", "poolside_v1"),
    ("<arg_key>", "glm45"),
    ("<tool_calls>", "jamba"),
    ("<tool_calls", "hy_v3"),
    ("<parameter=", "qwen3_coder"),
    ("<function=", "qwen3_coder"),
    ("<tool_call>", "hermes"),
)
REASONING_MARKS: tuple[tuple[str, str], ...] = (
    ("<|channel|>analysis", "openai_gptoss"),
    ("to=self", "muse_glimmer"),
    ("<seed:think>", "seed_oss"),
    ("<mm:think>", "minimax_m3"),
    ("[THINK]", "mistral"),
    ("<|START_THINKING|>", "cohere_command3"),
    ("<|channel>thought", "gemma4"),
    ("<|think:start|>", "solar_open2"),
    ("<|begin|>assistant<|think|>", "solar_open"),
    ("<|open|>think", "kimi_k3"),
    ("<|content_thinking|>", "inkling"),
    ("Here are my reasoning steps", "apriel"),
    ("my thought process", "granite"),
    ("<response></response>", "granite_think"),
    ("<think{}>", "hy_v3"),
    ("<think>", "think_auto"),
)

HALF_MARK = re.compile(r"(?:<[^<>]*|\[[A-Z_]*)\Z")  # two marks may begin alike

_ASK, _CONTENT, _OUTCOME, _REPLY, _THOUGHT = "w7rask", "w7rcontent", "w7routcome", "w7rreply", "w7rthought"
_CALLS: tuple[Arguments, ...] = (
    {"path": "w7rargument", "count": 3, "tags": ["w7rtag"]},
    {"path": "w7rargument"},  # some templates write nested values in no dialect's way
)
_TOOL = ToolDefinition(
    "w7rtool",
    "d",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "d"},
            "count": {"type": "integer", "description": "d"},
            "tags": {"type": "array", "items": {"type": "string"}, "description": "d"},
        },
        "required": ["path"],
    },
)


@dataclass(frozen=True, slots=True)
class Detection:
    """The names of the dialects ("none": switched off, or no thinking), and why these. Not `sure`: to be said loudly."""

    tools: str
    reasoning: str
    why: str
    sure: bool


def detect(template: ChatTemplate, *, tools: str = "auto", reasoning: str = "auto") -> Detection:
    """Find what is "auto"; other names stand as they are. Blocking: renders the template a few times."""
    sure, reasons = True, []
    if tools == "auto":
        tools, why, sure = _tool_dialect(template)
        reasons.append(f"tool calls: {why}")
    if reasoning == "auto":
        reasoning, why = _reasoning_dialect(template, tools)
        reasons.append(f"reasoning: {why}")
    return Detection(tools, reasoning, "; ".join(reasons) or "named explicitly", sure)


# -- tool calls


def _tool_dialect(template: ChatTemplate) -> tuple[str, str, bool]:
    """(name, why, sure)."""
    if template.capabilities.tool_calls:
        for arguments in _CALLS:
            if found := _read_back(template, arguments):
                return found, f"the template writes a call as {found} does", True
    for mark, name in TOOL_MARKS:
        if mark in template.source:
            return name, f"the template holds {mark!r}", True
    if not template.capabilities.tools:
        why = f"the template knows no tools, so instructions ask for calls as {FALLBACK} writes them"
        return FALLBACK, why, True
    return FALLBACK, f"the template shows no dialect that is known; {FALLBACK} is a guess", False


def _read_back(template: ChatTemplate, arguments: Arguments) -> str:
    """The dialect whose parser finds a rendered call again: the one whose writer comes nearest to it; "" for none."""
    rendered = _rendered_call(template, arguments)
    readers = [dialect for dialect in _all_dialects() if _reads(dialect, rendered, arguments)]
    if not readers:
        return ""

    def likeness(dialect: ToolDialect) -> tuple[bool, int, int]:
        written = dialect.render([ToolCall("call00001", _TOOL.name, arguments)]).strip()
        alike = _skeleton(written) in _skeleton(rendered)
        return written in rendered, len(_skeleton(written)) if alike else 0, -_rank(dialect, template)

    return max(readers, key=likeness).name


def _rendered_call(template: ChatTemplate, arguments: Arguments) -> str:
    """What a template writes between the opening of an answer and a tool's result, for an answer that calls."""
    ask = Message("user", (TextPart(_ASK),))
    call = Message("assistant", (), (ToolCall("call00001", _TOOL.name, arguments),))
    result = Message("tool", (TextPart(_OUTCOME),), tool_call_id="call00001", name=_TOOL.name)
    reply = Message("assistant", (TextPart(_REPLY),))
    opened = _render(template, [ask])
    text = _render(template, [ask, call, result, reply, ask])
    begin = len(HALF_MARK.sub("", text[: _shared(opened, text)]))
    return text[begin:].partition(_OUTCOME)[0]


def _render(template: ChatTemplate, messages: Sequence[Message], **kwargs: object) -> str:
    try:
        return template.render(messages, tools=[_TOOL], kwargs=kwargs).text
    except EdgewiseError:
        return ""


def _shared(one: str, other: str) -> int:
    """The length of the common beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _all_dialects() -> list[ToolDialect]:
    return list({id(each): each for each in map(dialects.dialect, dialects.names())}.values())


def _reads(dialect: ToolDialect, text: str, arguments: Arguments) -> bool:
    parser = dialect.parser([_TOOL], new_id=lambda: "id")
    events = [*parser.push(text), *parser.finish()]
    read = "".join(event.text for event in events if isinstance(event, ArgumentPiece))
    calls = [event for event in events if isinstance(event, CallStart)]
    complete = all(event.complete for event in events if isinstance(event, CallEnd))
    return len(calls) == 1 and complete and json.loads(read) == arguments


def _skeleton(text: str) -> str:
    """Text without white space, in which writers differ."""
    return "".join(text.split())


def _rank(dialect: ToolDialect, template: ChatTemplate) -> int:
    """The place of a dialect among those that read and write the same: that of its first mark in the template."""
    places = (place for place, (mark, name) in enumerate(TOOL_MARKS) if dialects.dialect(name) is dialect)
    return min((p for p in places if TOOL_MARKS[p][0] in template.source), default=len(TOOL_MARKS))


# -- thinking


def _reasoning_dialect(template: ChatTemplate, tools: str) -> tuple[str, str]:
    """(name, why)."""
    for probe in (_opened_thought, _rendered_thought):
        if found := next(iter(probe(template)), None):
            return _special_name(found[0], tools), found[1]
    for dialect in _candidates(template):
        return _special_name(dialect.name, tools), f"the template holds {dialect.start!r}"
    return "none", "the template shows none"


def _candidates(template: ChatTemplate) -> list[ReasoningDialect]:
    return [reasoning_dialect(name) for mark, name in REASONING_MARKS if mark in template.source]


def _opened_thought(template: ChatTemplate) -> Iterator[tuple[str, str]]:
    """Dialects whose thinking a prompt's end opens."""
    ask = [Message("user", (TextPart(_ASK),))]
    for kwargs in ({"enable_thinking": True, "thinking": True}, {}):
        prompt = _render(template, ask, **kwargs)
        for dialect in _candidates(template):
            if dialect.is_open(prompt):
                yield dialect.name, f"the prompt ends with {dialect.start!r}"


def _rendered_thought(template: ChatTemplate) -> Iterator[tuple[str, str]]:
    """Dialects that split a rendered turn's thinking from its content."""
    ask = Message("user", (TextPart(_ASK),))
    turn = Message("assistant", (TextPart(_CONTENT),), reasoning=_THOUGHT)
    for messages in ([ask, turn], [ask, turn, ask]):
        text = _render(template, messages, enable_thinking=True, thinking=True).rpartition(_CONTENT)[0]
        for dialect in _candidates(template):
            _, start, rest = text.rpartition(dialect.start)
            if start and _THOUGHT in rest and dialect.end in rest:
                yield dialect.name, f"the template writes thinking after {dialect.start!r}"


def _special_name(name: str, tools: str) -> str:
    """The tags of `think_auto` under the model's own name, where it has one."""
    tools = {"deepseek_v31": "deepseek_v3", "deepseek_v32": "deepseek_v3"}.get(tools, tools)
    if name == "think_auto" and tools in reasoning_names() and reasoning_dialect(tools).end == "</think>":
        return tools
    return name
