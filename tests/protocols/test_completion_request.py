"""Completion requests: the shapes of `prompt`, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from edgewise.core.errors import InvalidRequestError
from edgewise.protocols.completions import parse_request


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ("a",)),
        ("", ("",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1], [2, 3]], ((1,), (2, 3))),
        (["a", [1]], ("a", (1,))),
    ],
)
def test_prompts_come_in_every_shape(prompt: Any, prompts: Any):
    assert parse_request({"prompt": prompt}).prompts == prompts


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [1, -1]}, "prompt[1]"),
        ({"prompt": [1, 2**31]}, "prompt[1]"),
        ({"prompt": [1, True]}, "prompt[1]"),
        ({"prompt": [[1, 2.5]]}, "prompt[0][1]"),
        ({"prompt": ["a"] * 2049}, "prompt"),
        ({"prompt": "a", "logprobs": -1}, "logprobs"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "suffix": "b", "echo": True}, "suffix"),
        ({"prompt": [1], "suffix": "b"}, "suffix"),
        ({"prompt": "a", "stop": []} | {"best_of": 0}, "best_of"),
        ({"prompt": "a", "prompt_embeds": "x"}, "prompt_embeds"),
        ({"prompt": "a", "response_format": {"type": "json_schema"}}, "response_format.schema"),
        ({"prompt": "a", "request_id": 5}, "request_id"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], param: str):
    with pytest.raises(InvalidRequestError) as caught:
        parse_request(fields)
    assert caught.value.param == param


def test_a_body_that_is_no_object_has_no_field_to_name():
    with pytest.raises(InvalidRequestError, match="must be a JSON object") as caught:
        parse_request([])
    assert caught.value.param is None


def test_a_value_nested_as_deep_as_json_allows_is_refused_and_shown_by_its_kind():
    nested: list[Any] = []
    for _ in range(1000):
        nested = [nested]
    with pytest.raises(InvalidRequestError, match="got a list"):
        parse_request({"prompt": nested})


def test_max_tokens_defaults_to_sixteen_and_follows_min_tokens():
    assert parse_request({"prompt": "a"}).sampling["max_tokens"] == 16
    assert parse_request({"prompt": "a", "max_tokens": None}).sampling["max_tokens"] == 16
    assert parse_request({"prompt": "a", "min_tokens": 20}).sampling["max_tokens"] == 20


def test_echo_allows_scoring_the_prompt_alone():
    request = parse_request({"prompt": "a", "max_tokens": 0, "echo": True, "logprobs": 2})
    assert request.sampling["max_tokens"] == 0
    assert request.sampling["prompt_logprobs"] == 2
    assert not request.reply.prompt_logprobs, "the caller asked for echoed logprobs, not for the vLLM field"


def test_an_empty_suffix_asks_for_nothing():
    assert parse_request({"prompt": "a", "suffix": ""}).suffix is None
