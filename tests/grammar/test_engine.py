"""Grammars in the real engine: over a model of noise in the quick tier, over SmolLM2 for the collection of schemas."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from edgewise.build import engine_dir_for
from edgewise.core.grammar import (
    Constraint,
    FreeText,
    Json,
    OneOf,
    Regex,
    Sequence,
    Text,
    Thinking,
    Triggered,
)
from edgewise.core.requests import GenerationRequest, TokenEvent
from edgewise.core.sampling import SamplingParams
from edgewise.decoder.decoder import Decoder, DecoderConfig
from edgewise.engine.config import EngineConfig
from edgewise.engine.core import EngineCore
from edgewise.engine.sequence import ActiveRequest
from edgewise.grammar import GrammarCompiler
from edgewise.kernels.native import layout_of
from edgewise.text.tokenizer import Tokenizer
from tests.grammar.schemas import SCHEMAS, validate
from tests.support.models import model_path
from tests.support.tiny_gguf import write_tiny_gguf


@dataclass
class Answer:
    tokens: list[int] = field(default_factory=list)
    reason: str | None = None
    error: Exception | None = None
    num_logprobs: int = 0


class Bound:
    """A model with a grammar compiler; every run has an engine of its own."""

    def __init__(self, path: Path) -> None:
        engine_dir = engine_dir_for(path, layout=layout_of("auto"))
        self.decoder = Decoder(
            engine_dir, DecoderConfig(num_blocks=256, max_rows=128, max_outputs=16, threads=2)
        )
        self.tokenizer = Tokenizer.load(engine_dir.path)
        self.compiler = GrammarCompiler(self.tokenizer, vocab_size=self.decoder.vocab_size)

    def run(self, *asked: tuple[str, Constraint | None, dict[str, Any]], jump: bool = True) -> list[Answer]:
        """One answer for each (prompt, constraint, sampling), all at once."""
        config = EngineConfig(
            max_model_len=self.decoder.spec.max_positions,
            max_num_batched_tokens=128,
            enable_jump_forward=jump,
        )
        core = EngineCore(self.decoder, config)
        answers = []
        for i, (prompt, constraint, sampling) in enumerate(asked):
            request = GenerationRequest(
                str(i),
                np.array(self.tokenizer.encode(prompt, parse_special=True), np.int32),
                SamplingParams(**{"temperature": 1.0, "seed": i, **sampling}),
                frozenset(self.tokenizer.eos_token_ids),
                constraint=None if constraint is None else self.compiler.compile(constraint).make,
            )
            answers.append(Answer())
            core.add(ActiveRequest(request, sink_of(answers[-1]), seed=request.sampling.seed or 0, order=i))
        while core.has_work:
            core.step()
        return answers

    def text(self, answer: Answer) -> str:
        return self.tokenizer.decode(answer.tokens)


def sink_of(answer: Answer) -> Any:
    def sink(event: TokenEvent) -> None:
        answer.tokens += event.token_ids
        answer.num_logprobs += len(event.logprobs or ())
        answer.reason = event.finish_reason or answer.reason
        answer.error = event.error or answer.error

    return sink


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bound]:
    """A tiny model of random weights."""
    bound = Bound(write_tiny_gguf(tmp_path_factory.mktemp("model") / "noise.gguf"))
    with contextlib.closing(bound.decoder):
        yield bound


LONG_KEYS = Json(
    {
        "type": "object",
        "properties": {f"a_rather_long_name_of_a_property_{name}": {"type": "integer", "maximum": 99} for name in "abc"},
        "required": [f"a_rather_long_name_of_a_property_{name}" for name in "abc"],
        "additionalProperties": False,
    }
)  # fmt: skip
CALL = Sequence(
    (
        Text('<call>{"name": "'),
        OneOf((Text("hello"), Text("world"))),
        Text('", "arguments": '),
        LONG_KEYS,
        Text("}</call>"),
    )
)
CONSTRAINTS = {
    "schema": Constraint(LONG_KEYS),
    "call": Constraint(CALL),
    "choice": Constraint(OneOf((Text("Hello the world"), Text("Hello thing"), Text("the world")))),
    "triggered": Constraint(FreeText((Triggered("e", Sequence((Text("e"), CALL))),), max_regions=1)),
    "thinking": Constraint(LONG_KEYS, Thinking("<think>", "</think>", True, budget_tokens=6, closing="\nHello!</think>\n")),
    "pattern": Constraint(Regex("(Hello the ){3}world [0-9]{4}")),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_jump_forward_changes_steps_and_no_token(noise: Bound, name: str):
    """The same tokens jumping, stepping, with log probabilities, and among other requests."""
    asked = ("Hello", CONSTRAINTS[name], {"max_tokens": 300})
    (jumped,) = noise.run(asked)
    (stepped,) = noise.run(asked, jump=False)
    (scored,) = noise.run(("Hello", CONSTRAINTS[name], {"max_tokens": 300, "logprobs": 0}))
    among = noise.run(asked, *[("the world", each, {"max_tokens": 300}) for each in CONSTRAINTS.values()])
    assert jumped.tokens and jumped.tokens == stepped.tokens == scored.tokens == among[0].tokens
    assert jumped.reason == stepped.reason == scored.reason == among[0].reason
    assert scored.num_logprobs == len(scored.tokens)


def test_forced_stretches_are_written_as_the_tokenizer_writes_them(noise: Bound):
    (answer,) = noise.run(("Hello", Constraint(Text("Hello the world in the other world")), {}))
    assert answer.tokens == noise.tokenizer.encode("Hello the world in the other world")
    assert answer.reason == "stop"


def test_choices_of_one_request_have_grammars_of_their_own(noise: Bound):
    schema = Json({"enum": [f"word {n}" for n in range(40)]})
    answers = noise.run(*[("Hello", Constraint(schema), {"seed": seed}) for seed in range(6)])
    texts = {noise.text(answer) for answer in answers}
    assert len(texts) > 1
    for text in texts:
        validate(schema.schema, text)


def test_what_a_grammar_and_other_rules_leave_nothing_of_fails_alone(noise: Bound):
    other = noise.tokenizer.encode("x")[0]
    good, bad = noise.run(
        ("Hello", Constraint(Regex("[abc]{3}")), {}),
        ("Hello", Constraint(Regex("[abc]{3}")), {"allowed_token_ids": (other,)}),
    )
    assert good.error is None and len(noise.text(good)) == 3
    assert bad.reason == "error" and "no token is left" in str(bad.error)


@pytest.mark.parametrize("name", [name for i, name in enumerate(SCHEMAS) if i % 8 == 0])
def test_answers_of_noise_validate(noise: Bound, name: str):
    constraint = Constraint(Json(SCHEMAS[name], name, strict=True))
    asked = [("Hello", constraint, {"seed": seed, "max_tokens": 400}) for seed in range(3)]
    for answer in noise.run(*asked):
        assert answer.error is None
        if answer.reason == "stop":
            validate(SCHEMAS[name], noise.text(answer))


SEEDS = range(5)
MAX_CUT = 0.05
PARTS = 5
PROMPT = "<|im_start|>user\nWrite a JSON value for {}.<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Bound]:
    bound = Bound(model_path())
    with contextlib.closing(bound.decoder):
        yield bound


@pytest.fixture(scope="module")
def cut_of_part() -> dict[int, list[str]]:
    """The answers that were cut, by part."""
    return {}


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_finished_answer_of_smollm2_validates(
    smollm2: Bound, part: int, cut_of_part: dict[int, list[str]], capsys: pytest.CaptureFixture[str]
):
    """All schemas, five seeds, temperature 1. Cut answers are listed and never counted as valid."""
    names = list(SCHEMAS)[part::PARTS]
    asked = [(name, seed) for name in names for seed in SEEDS]
    answers = smollm2.run(
        *(
            (
                PROMPT.format(name.replace("_", " ")),
                Constraint(Json(SCHEMAS[name], name, strict=True)),
                {"seed": seed, "max_tokens": 1024},
            )
            for name, seed in asked
        )
    )
    cut, wrong = [], []
    for (name, seed), answer in zip(asked, answers, strict=True):
        text = smollm2.text(answer)
        if answer.reason != "stop":
            cut.append(f"{name}, seed {seed}: {answer.reason}, {answer.error}, ...{text[-60:]!r}")
            continue
        try:
            validate(SCHEMAS[name], text)
        except (ValueError, jsonschema.ValidationError) as error:
            wrong.append(f"{name}, seed {seed}: {text!r}: {error}")
    with capsys.disabled():
        print(f"\n{len(answers)} answers, {len(cut)} cut", *cut, sep="\n")
    cut_of_part[part] = cut
    assert not wrong, "\n".join(wrong)


@pytest.mark.model
@pytest.mark.slow
def test_few_answers_are_cut(cut_of_part: dict[int, list[str]]):
    if len(cut_of_part) < PARTS:
        pytest.skip("not all parts have run")
    cut = [line for lines in cut_of_part.values() for line in lines]
    assert len(cut) < MAX_CUT * len(SCHEMAS) * len(SEEDS), "\n".join(cut)
