"""The 34 request names of TensorRT Edge-LLM 0.11: each is honoured, or refused or warned of where it asks for what is not there."""

from __future__ import annotations

from typing import Any

import pytest

from edgewise.core.chat import ReasoningOptions, ToolChoice
from edgewise.core.errors import InvalidRequestError
from edgewise.protocols.chat import ParsedChat, parse_request

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "put"}}

HONOURED: dict[str, tuple[dict[str, Any], Any]] = {
    # name: (fields to send, what they become: a path of attributes and its value)
    "add_generation_prompt": ({"add_generation_prompt": False}, ("chat.add_generation_prompt", False)),
    "apply_chat_template": ({"apply_chat_template": False}, ("chat.apply_chat_template", False)),
    "cache_generated_tokens": ({"cache_generated_tokens": False}, ("chat.cache_generated_tokens", False)),
    "chat_template_kwargs": ({"chat_template_kwargs": {"a": 1}}, ("chat.template_kwargs", {"a": 1})),
    "disable_spec_decode": (
        {"disable_spec_decode": True},
        ("chat.sampling", {"disable_spec_decode": True}),
    ),
    "enable_thinking": ({"enable_thinking": True}, ("chat.reasoning", ReasoningOptions(True))),
    "frequency_penalty": ({"frequency_penalty": 1}, ("chat.sampling", {"frequency_penalty": 1.0})),
    "guided_decoding": ({"guided_decoding": {"regex": "a"}}, ("chat.output_format.value", "a")),
    "logit_bias": ({"logit_bias": {"7": 1}}, ("chat.sampling", {"logit_bias": {7: 1.0}})),
    "logprobs": ({"logprobs": True}, ("reply.logprobs", 0)),
    "max_completion_tokens": ({"max_completion_tokens": 7}, ("chat.sampling", {"max_tokens": 7})),
    "max_tokens": ({"max_tokens": 7}, ("chat.sampling", {"max_tokens": 7})),
    "messages": ({}, ("chat.messages.0.text", "hi")),
    "min_p": ({"min_p": 0.1}, ("chat.sampling", {"min_p": 0.1})),
    "modalities": ({"modalities": ["text"]}, ("chat.ignored_fields", ())),
    "model": ({"model": "m"}, ("chat.model", "m")),
    "n": ({"n": 2}, ("reply.num_choices", 2)),
    "parallel_tool_calls": (
        {"tools": [TOOL], "parallel_tool_calls": False},
        ("chat.tool_choice", ToolChoice("auto", parallel=False)),
    ),
    "presence_penalty": ({"presence_penalty": 1}, ("chat.sampling", {"presence_penalty": 1.0})),
    "reasoning_effort": ({"reasoning_effort": "low"}, ("chat.reasoning", ReasoningOptions(True, "low"))),
    "repetition_penalty": ({"repetition_penalty": 1.1}, ("chat.sampling", {"repetition_penalty": 1.1})),
    "response_format": (
        {"response_format": {"type": "json_object"}},
        ("chat.output_format.kind", "json_object"),
    ),
    "reuse_context": ({"reuse_context": False}, ("chat.reuse_context", False)),
    "seed": ({"seed": 7}, ("chat.sampling", {"seed": 7})),
    "stop": ({"stop": "x"}, ("chat.sampling", {"stop": ["x"]})),
    "stream": ({"stream": True}, ("reply.stream", True)),
    "stream_options": (
        {"stream": True, "stream_options": {"include_usage": True}},
        ("reply.include_usage", True),
    ),
    "temperature": ({"temperature": 0}, ("chat.sampling", {"temperature": 0.0})),
    "tool_choice": ({"tools": [TOOL], "tool_choice": "none"}, ("chat.tool_choice.mode", "none")),
    "tools": ({"tools": [TOOL]}, ("chat.tools.0.name", "put")),
    "top_k": ({"top_k": 5}, ("chat.sampling", {"top_k": 5})),
    "top_logprobs": ({"logprobs": True, "top_logprobs": 2}, ("reply.logprobs", 2)),
    "top_p": ({"top_p": 0.5}, ("chat.sampling", {"top_p": 0.5})),
}
WITHOUT_EFFECT = {"audio": {"format": "pcm16"}}


def look_up(parsed: ParsedChat, path: str) -> Any:
    found: Any = parsed
    for step in path.split("."):
        found = found[int(step)] if step.isdecimal() else getattr(found, step)
    return found


def test_there_are_34_of_them():
    assert len(HONOURED.keys() | WITHOUT_EFFECT.keys()) == 34


@pytest.mark.parametrize("name", HONOURED)
def test_honoured(name: str):
    fields, (path, expected) = HONOURED[name]
    parsed = parse_request({"messages": [USER], **fields})
    found = look_up(parsed, path)
    if isinstance(expected, dict) and path == "chat.sampling":
        found = {key: found[key] for key in expected}
    assert found == expected
    assert not parsed.chat.ignored_fields


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_warned_of(name: str):
    parsed = parse_request({"messages": [USER], name: WITHOUT_EFFECT[name]})
    assert parsed.chat.ignored_fields == (name,)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"modalities": ["text", "audio"], "audio": {"format": "pcm16"}}, "modalities[1]"),
        ({"apply_chat_template": 1}, "apply_chat_template"),
        ({"reuse_context": "no"}, "reuse_context"),
        ({"cache_generated_tokens": "no"}, "cache_generated_tokens"),
        ({"disable_spec_decode": "no"}, "disable_spec_decode"),
        ({"guided_decoding": {"regex": "a"}, "response_format": {"type": "json_object"}}, "guided_decoding"),
    ],
)
def test_refused(fields: dict[str, Any], param: str):
    with pytest.raises(InvalidRequestError) as caught:
        parse_request({"messages": [USER], **fields})
    assert caught.value.param == param
