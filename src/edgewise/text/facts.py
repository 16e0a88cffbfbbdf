"""What a tokenizer.json does not say, or says in many ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgewise.text.specials import FimTokens


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """The rules of a tokenizer beyond its vocabulary and merges."""

    kind: Literal["byte_level", "sentencepiece"]
    bos_token_id: int | None
    eos_token_id: int | None
    eos_token_ids: frozenset[int]
    adds_bos: bool
    adds_eos: bool
    add_space_prefix: bool
    cuts_at_spaces: bool  # a long text may be encoded in pieces cut before spaces
    fim: FimTokens | None
