"""Text to token ids and back, exactly as the model was trained; control tokens only where the caller trusts the text.

A `Tokenizer` is immutable after construction and may be used by several threads at once (the library under it releases the GIL).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from edgewise.core.errors import InvalidRequestError
from edgewise.text.backends import byte_alphabet, byte_level_backend, sentencepiece_backend
from edgewise.text.facts import TokenizerFacts
from edgewise.text.pretokenizers import pre_tokenizer
from edgewise.text.saved import read_saved, write_saved
from edgewise.text.specials import TokenFinder, corrected_types, end_token_ids, fim_tokens
from edgewise.text.vocabulary import CONTROL, UNKNOWN, USER_DEFINED, read_vocabulary

CHUNK_CHARS = 1 << 16
MAX_STRETCH_CHARS = 1 << 20  # 1.2 s and 100 MB on a 2-core machine; no window holds so much

_WHITE_SPACE = " \t\n\v\f\r"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# A place where every pre-tokenizer of the table ends a word, whatever stands on either side: before a space that follows
# one of these. Nothing looks behind, and looking ahead from earlier words stops at the space.
_CUT = re.compile(r"(?<=[A-Za-z0-9,;]) ")


class Tokenizer:
    """A vocabulary with its rules. `added` are control (`special`) and user-defined tokens by id."""

    def __init__(
        self,
        backend: Backend,
        tokens: Sequence[str | None],
        added: Mapping[int, AddedToken],
        facts: TokenizerFacts,
    ) -> None:
        self._backend = backend  # knows nothing of `added`: it is given only the text between them
        self._tokens = tokens
        self._added = added
        self.facts = facts
        self.vocab_size = len(tokens)
        self.bos_token_id = facts.bos_token_id
        self.eos_token_id = facts.eos_token_id
        self.eos_token_ids = facts.eos_token_ids
        self.adds_bos = facts.adds_bos and facts.bos_token_id is not None
        self.fim = facts.fim
        self.special_tokens: Mapping[str, int] = MappingProxyType(
            {token.content: i for i, token in added.items() if token.special}
        )
        self.control_tokens = frozenset(self.special_tokens)
        self._special_ids = frozenset(self.special_tokens.values())
        self._added_ids = {token.content: i for i, token in added.items()}
        self._strips = frozenset(token.content for token in added.values() if token.rstrip)
        self._find_all = TokenFinder(self._added_ids)
        self._find_plain = TokenFinder(token.content for token in added.values() if not token.special)
        self._prefix_replaces_space = int(facts.add_space_prefix and facts.kind == "sentencepiece")
        self._bytes_of = functools.cache(self._compute_bytes)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Build from the `tokenizer.ggml.*` keys. Raises TokenizerError naming the key or the kind at fault."""
        vocabulary = read_vocabulary(metadata)
        tokens, ids, flags = vocabulary.tokens, vocabulary.ids, vocabulary.flags
        types = corrected_types(tokens, vocabulary.types)
        byte_level = vocabulary.model == "gpt2"
        prefix = flags.get("add_space_prefix", not byte_level)
        if byte_level:
            backend = byte_level_backend(vocabulary, types)
            adds_bos, cuts_at_spaces = pre_tokenizer(vocabulary.pre).adds_bos, True
        else:
            backend = sentencepiece_backend(vocabulary, types, add_space_prefix=prefix)
            adds_bos, cuts_at_spaces = True, not any(_CUT.search(text.replace("▁", " ")) for text in tokens)
        control = {text: i for i, text in enumerate(tokens) if types[i] == CONTROL}
        facts = TokenizerFacts(
            kind="byte_level" if byte_level else "sentencepiece",
            bos_token_id=ids.get("bos"),
            eos_token_id=ids.get("eos"),
            eos_token_ids=end_token_ids(control, (ids[k] for k in ("eos", "eot", "eom") if k in ids)),
            adds_bos=flags.get("add_bos_token", adds_bos),
            adds_eos=flags.get("add_eos_token", False),
            add_space_prefix=prefix,
            cuts_at_spaces=cuts_at_spaces,
            fim=fim_tokens(control, ids),
        )
        return cls(backend, tokens, _added_tokens(vocabulary.model_name, tokens, types), facts)

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Open the directory that `save` wrote, or a published tokenizer.json under whatever name.

        Raises TokenizerError for missing, damaged or foreign files.
        """
        saved = read_saved(Path(path))
        return cls(saved.backend, saved.tokens, saved.added, saved.facts)

    def save(self, directory: Path) -> None:
        """Write tokenizer.json (readable by the `tokenizers` library on its own) and tokenizer_config.json."""
        write_saved(Path(directory), self._backend, self._added, self.facts)

    def encode(
        self, text: str, *, add_special_tokens: bool = False, parse_special: bool = False
    ) -> list[int]:
        """Token ids of `text`.

        `add_special_tokens` puts the beginning (and end) token round it where the model wants them. Control tokens written
        out in `text` become control tokens only with `parse_special`; user-defined tokens, which stand for nothing but their
        characters, always do. Raises InvalidRequestError for lone surrogates and for endless unbroken text.
        """
        if parse_special:
            ids, _ = self.encode_segments((text,))
        else:
            check_unicode(text)
            ids = []
            self._encode_text(text, ids)
        if add_special_tokens and self.adds_bos and self.bos_token_id is not None:
            ids.insert(0, self.bos_token_id)
        if add_special_tokens and self.facts.adds_eos and self.eos_token_id is not None:
            ids.append(self.eos_token_id)
        return ids

    def encode_segments(self, segments: Iterable[str]) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids of the segments as one text, in which control tokens count unless a segment border cuts them.

        Also returns marks: (characters, tokens) before each place where a control token starts or ends, and at the end. Between
        two marks the text is merged as a whole, across segment borders.
        """
        ids: list[int] = []
        marks: list[tuple[int, int]] = []
        plain: list[str] = []  # since the last control token
        num_chars = 0
        strip = False
        for text, token_id in self._cut_at_control(segments):
            num_chars += len(text)
            if token_id is None:
                plain.append(text)
                continue
            self._encode_between(plain, ids, strip=strip)
            marks += (num_chars - len(text), len(ids)), (num_chars, len(ids) + 1)
            ids.append(token_id)
            strip = text in self._strips
        self._encode_between(plain, ids, strip=strip)
        marks.append((num_chars, len(ids)))
        return ids, marks

    def _cut_at_control(self, segments: Iterable[str]) -> Iterator[tuple[str, int | None]]:
        """The segments in pieces: a control token's text with its id, anything else with None."""
        for segment in segments:
            check_unicode(segment)
            position = done = 0
            while match := self._find_all.search(segment, position):
                position = match.end()
                if (token_id := self.special_tokens.get(match.group())) is not None:
                    yield segment[done : match.start()], None
                    yield match.group(), token_id
                    done = position
            yield segment[done:], None

    def _encode_between(self, plain: list[str], ids: list[int], *, strip: bool) -> None:
        """Append the ids of the pieces between two control tokens, and forget the pieces."""
        text = "".join(plain)
        plain.clear()
        self._encode_text(text.lstrip(_WHITE_SPACE) if strip else text, ids)

    def _encode_text(self, text: str, ids: list[int]) -> None:
        """Append the ids of text in which no control token counts."""
        position = 0
        while match := self._find_plain.search(text, position):
            self._encode_plain(text[position : match.start()], ids)
            ids.append(self._added_ids[match.group()])
            position = match.end()
        self._encode_plain(text[position:], ids)

    def _encode_plain(self, text: str, ids: list[int]) -> None:
        """Append the ids of text without added tokens, in pieces whose ids do not depend on one another.

        The library keeps some 100 bytes for every character, and its time grows faster than the text.
        """
        start = 0
        while len(text) - start > CHUNK_CHARS:
            cut = _CUT.search(text, start + CHUNK_CHARS) if self.facts.cuts_at_spaces else None
            end = cut.start() if cut else len(text)
            if end - start > MAX_STRETCH_CHARS:
                raise InvalidRequestError(
                    f"the text has a stretch of {end - start} characters without a space between words; "
                    f"at most {MAX_STRETCH_CHARS} can be tokenised"
                )
            ids += self._library_ids(text[start:end])
            start = end + self._prefix_replaces_space
        if start < len(text):
            ids += self._library_ids(text[start:])

    def _library_ids(self, text: str) -> list[int]:
        # Of the library's ways to encode this one releases the GIL and counts no offsets.
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of `ids`: their bytes one after another, what is not UTF-8 as U+FFFD.

        The space that SentencePiece puts before a text is part of its first token and stays: `ids` may be the middle of a text.
        """
        kept = (i for i in ids if not (skip_special_tokens and i in self._special_ids))
        return b"".join(map(self.token_bytes, kept)).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes a token stands for; a control token's are its text. Raises InvalidRequestError outside the vocabulary."""
        if not 0 <= token_id < self.vocab_size:
            raise InvalidRequestError(
                f"token id {token_id} is outside the vocabulary of {self.vocab_size} tokens"
            )
        return self._bytes_of(token_id)

    def _compute_bytes(self, token_id: int) -> bytes:
        text = self._tokens[token_id]
        if text is None:
            return b""
        if token_id in self._added:
            return text.encode()
        if self.facts.kind == "byte_level":
            alphabet = byte_alphabet()
            try:
                return bytes([alphabet[char] for char in text])
            except KeyError:  # a token written in plain text, such as the padding of a vocabulary
                return text.encode()
        if byte := _BYTE_TOKEN.fullmatch(text):
            return bytes.fromhex(byte[1])
        return text.replace("▁", " ").encode()

    def token_text(self, token_id: int) -> str:
        """A readable form: the token's text, U+FFFD where it holds parts of characters."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def is_special(self, token_id: int) -> bool:
        """Whether it is a control token, whose text is not part of an answer."""
        return token_id in self._special_ids

    @functools.cached_property
    def max_token_bytes(self) -> int:
        """Bytes of the longest token: a text of N bytes has at least N / max_token_bytes tokens."""
        return max(len(self._compute_bytes(i)) for i in range(self.vocab_size))

    @property
    def bos_token(self) -> str:
        """The beginning token's text, or ""."""
        return self._text_or_empty(self.bos_token_id)

    @property
    def eos_token(self) -> str:
        """The end token's text, or ""."""
        return self._text_or_empty(self.eos_token_id)

    def _text_or_empty(self, token_id: int | None) -> str:
        return "" if token_id is None else self._tokens[token_id] or ""


def check_unicode(text: str) -> None:
    """Raise InvalidRequestError for a lone surrogate, which no UTF-8 can carry."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"the text holds a lone surrogate (U+{ord(text[error.start]):04X}) at character {error.start}"
        ) from None


def _added_tokens(model_name: str, tokens: Sequence[str], types: Sequence[int]) -> dict[int, AddedToken]:
    """Control and user-defined tokens by id."""
    # Phi-3's control tokens swallow the white space after them. GGUF has no key for that; llama.cpp goes by the name, too.
    strips = any(name in model_name.lower() for name in ("phi-3", "phi3"))
    return {
        i: AddedToken(
            text,
            special=type_ != USER_DEFINED,
            normalized=False,
            rstrip=strips and text not in ("<unk>", "<s>", "<|endoftext|>"),
        )
        for i, (text, type_) in enumerate(zip(tokens, types, strict=True))
        if type_ in (CONTROL, UNKNOWN, USER_DEFINED)
    }
