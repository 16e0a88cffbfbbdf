"""The vocabulary as the grammar engine sees it: exact bytes of every token, control tokens by id, how text is tokenised."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from llguidance import LLTokenizer, TokenizerWrapper

# Set before a text so that no space is put before it; no vocabulary merges it with what follows.
_MARK = "\x02"


class Vocabulary(Protocol):
    """What grammars need of a tokenizer; `text.Tokenizer` has it."""

    vocab_size: int

    @property
    def special_tokens(self) -> Mapping[str, int]: ...
    @property
    def eos_token_ids(self) -> Collection[int]: ...
    @property
    def bos_token_id(self) -> int | None: ...
    def token_bytes(self, token_id: int) -> bytes: ...
    def encode(
        self, text: str, *, add_special_tokens: bool = False, parse_special: bool = False
    ) -> list[int]: ...


class TokenTable:
    """A tokenizer prepared for grammars. Immutable; building it takes about a second for 150,000 tokens.

    Control tokens are not text: a grammar allows one only where it names it. User-defined tokens that stand for their characters are
    text like any other. `vocab_size` is the model's, whose padding no grammar allows.
    """

    def __init__(self, tokenizer: Vocabulary, vocab_size: int | None = None) -> None:
        self.vocab_size = vocab_size or tokenizer.vocab_size
        self._tokenizer = tokenizer
        self.control = {text: i for text, i in tokenizer.special_tokens.items() if i < self.vocab_size}
        self.eos_ids = sorted(i for i in tokenizer.eos_token_ids if i < self.vocab_size)
        longest_first = sorted((text for text in self.control if text), key=len, reverse=True)
        self._control_pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self.bytes = [
            tokenizer.token_bytes(i) if i < tokenizer.vocab_size else b"" for i in range(self.vocab_size)
        ]
        control = set(self.control.values())
        # A token's first byte; control tokens and empty ones, which are no text, each differ from everything.
        self.first_bytes = [
            -i - 1 if i in control or not text else text[0] for i, text in enumerate(self.bytes)
        ]
        self._encode_plain = plain_encoder(tokenizer)
        self.engine = LLTokenizer(_Wrapper(self, tokenizer.bos_token_id), eos_token=self.eos_ids or None)

    def pieces(self, text: str) -> Iterator[str | int]:
        """`text` in order: control tokens as ids, what is between them as text."""
        done = 0
        for match in self._control_pattern.finditer(text):
            if match.start() > done:
                yield text[done : match.start()]
            yield self.control[match.group()]
            done = match.end()
        if done < len(text):
            yield text[done:]

    def encode(self, text: str) -> list[int]:
        """Canonical ids of a text in the middle of an answer, its control tokens as such."""
        ids: list[int] = []
        for piece in self.pieces(text):
            ids += [piece] if isinstance(piece, int) else self._encode_plain(piece)
        return ids

    def encode_plain(self, text: str) -> list[int]:
        """Canonical ids of a text in the middle of an answer in which no control token counts."""
        return self._encode_plain(text)

    def text_of(self, control_id: int) -> str:
        """A control token as it looks."""
        return self.bytes[control_id].decode()

    def free_control_ids(self, without: Collection[int] = ()) -> list[int]:
        """Control tokens that free text may hold: all but those that end it and `without`."""
        return sorted(set(self.control.values()) - set(self.eos_ids) - set(without))


def plain_encoder(tokenizer: Vocabulary) -> Callable[[str], list[int]]:
    """How `tokenizer` writes a text that is not the first: SentencePiece puts a space before a first word."""
    mark = tokenizer.encode(_MARK)
    if b"".join(map(tokenizer.token_bytes, mark)) == _MARK.encode():
        return tokenizer.encode

    def encode(text: str) -> list[int]:
        ids = tokenizer.encode(_MARK + text)
        return ids[len(mark) :] if ids[: len(mark)] == mark else tokenizer.encode(text)

    return encode


class _Wrapper(TokenizerWrapper):
    """The form in which llguidance takes a tokenizer from Python. Its base class is made for objects of another kind."""

    is_tokenizer_wrapper = True

    def __init__(self, table: TokenTable, bos_token_id: int | None) -> None:
        self.eos_token_id = table.eos_ids[0] if table.eos_ids else None  # type: ignore[assignment]
        self.bos_token_id = bos_token_id
        self.tokens: Sequence[bytes] = table.bytes
        self.special_token_ids = sorted(table.control.values())
        self._encode = table.encode_plain

    def __call__(self, text: str) -> list[int]:
        return self._encode(text)
