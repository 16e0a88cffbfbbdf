"""SamplingParams: every spelling a person may use, and a refusal that names the field for everything else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewise.core.errors import InvalidRequestError
from edgewise.core.sampling import MAX_STOP_CHARS, SamplingParams


def test_numpy_numbers_are_numbers() -> None:
    got = SamplingParams(
        temperature=np.float32(0.5),
        top_p=np.float64(0.25),
        top_k=np.int64(3),
        max_tokens=np.int32(7),
        seed=np.uint64(2**63),
        stop_token_ids=np.array([1, 2]),
        allowed_token_ids=[np.int64(4)],
        logit_bias={np.int64(5): np.float32(1.5)},
    )
    assert (got.temperature, got.top_p, got.top_k, got.max_tokens, got.seed) == (0.5, 0.25, 3, 7, 2**63)
    assert (got.stop_token_ids, got.allowed_token_ids, got.logit_bias) == ((1, 2), (4,), {5: 1.5})
    kinds = {type(value) for value in (got.temperature, got.top_k, *got.stop_token_ids, *got.logit_bias)}
    assert kinds == {float, int}


def test_one_thing_is_a_list_of_one() -> None:
    def edit(ids: Any, logits: Any) -> None:
        """Nothing."""

    got = SamplingParams(stop="END", bad_words="the", logits_processors=edit)  # type: ignore[arg-type]
    assert (got.stop, got.bad_words, got.logits_processors) == (("END",), ("the",), (edit,))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop", 5),
        ("stop", {"a": 1}),
        ("stop", [None]),
        ("stop", ["x" * (MAX_STOP_CHARS + 1)]),
        ("bad_words", 5),
        ("stop_token_ids", 5),
        ("stop_token_ids", [1.5]),
        ("stop_token_ids", np.array([1.5])),
        ("allowed_token_ids", 5),
        ("logit_bias", [1]),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {1: float("nan")}),
        ("logits_processors", [5]),
        ("temperature", np.float32("nan")),
        ("temperature", True),
        ("temperature", "1"),
        ("repetition_penalty", 1e-300),
        ("repetition_penalty", 1e300),
        ("top_k", 1.0),
        ("max_tokens", np.float32(3)),
    ],
)  # fmt: skip
def test_everything_else_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{field: value})
    assert caught.value.param == field


def test_the_longest_stop_string_is_taken() -> None:
    assert len(SamplingParams(stop="x" * MAX_STOP_CHARS).stop[0]) == MAX_STOP_CHARS
