"""Following texts through a grammar token by token, as the engine would."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np

from edgewise.core.grammar import Constraint, FreeText, Rule
from edgewise.core.requests import TokenConstraint
from edgewise.grammar import GrammarCompiler
from tests.support.byte_tokenizer import ByteTokenizer

END = "<end>"
"""What `walk` says where the text may end."""


def allows(constraint: TokenConstraint, token: int) -> bool:
    mask = constraint.mask()
    return mask is None or bool(mask[token // 32] >> np.uint32(token % 32) & np.uint32(1))


def allowed(constraint: TokenConstraint) -> list[int]:
    """All tokens that may come next."""
    mask = constraint.mask()
    assert mask is not None
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def constraint_of(body: Rule | FreeText | Constraint) -> Constraint:
    return body if isinstance(body, Constraint) else Constraint(body)


class Walker:
    """Compiles for one tokenizer and walks."""

    def __init__(self, tokenizer: Any = None, vocab_size: int | None = None) -> None:
        self.tokenizer = tokenizer or ByteTokenizer()
        self.compiler = GrammarCompiler(self.tokenizer, vocab_size=vocab_size)

    def make(self, body: Rule | FreeText | Constraint) -> TokenConstraint:
        return self.compiler.compile(constraint_of(body)).make()

    def walk(self, body: Rule | FreeText | Constraint, text: str) -> str:
        """How far `text` may be written: all that is allowed of it, with `END` after it where the answer may end there."""
        ids = self.tokenizer.encode(text, parse_special=True)
        return self.walk_tokens(self.make(body), ids)

    def walk_tokens(self, constraint: TokenConstraint, ids: Iterable[int]) -> str:
        done: list[int] = []
        for token in ids:
            forced = constraint.forced()
            if (forced and forced[0] != token) or not allows(constraint, token):
                break
            done.append(token)
            if constraint.accept(token):
                return self.text(done) + END
        ends = any(allows(constraint, end) for end in self.tokenizer.eos_token_ids)
        return self.text(done) + (END if ends else "")

    def text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def random_answer(
        self, constraint: TokenConstraint, seed: int, *, max_tokens: int = 400
    ) -> list[int] | None:
        """Tokens chosen at random among those allowed, to the end; None where that does not come. The end is chosen when it can be."""
        chance = random.Random(seed)
        ids: list[int] = []
        ends = set(self.tokenizer.eos_token_ids)
        while len(ids) < max_tokens:
            forced = constraint.forced()
            choices = forced[:1] or allowed(constraint)
            if ends.intersection(choices):
                return ids
            token = chance.choice(choices)
            ids.append(token)
            if constraint.accept(token):
                return ids
        return None
