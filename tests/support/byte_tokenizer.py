"""A tokenizer for tests: one token a byte, and a few control tokens after them. Same interface as `edgewise.text.Tokenizer`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

CONTROL_TOKENS = (
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|fim_middle|>",
)


class ByteTokenizer:
    """Ids 0..255 are bytes; `CONTROL_TOKENS` follow in order. Ends on `</s>` and `<|im_end|>`."""

    def __init__(self, *, adds_bos: bool = False, control_tokens: Iterable[str] = CONTROL_TOKENS) -> None:
        specials = {text: 256 + i for i, text in enumerate(control_tokens)}
        self.special_tokens: Mapping[str, int] = MappingProxyType(specials)
        self.control_tokens = frozenset(specials)
        self.vocab_size = 256 + len(specials)
        self.max_token_bytes = max((len(text) for text in specials), default=1)
        self.bos_token_id = specials.get("<s>")
        self.bos_token = "<s>" if "<s>" in specials else ""
        self.eos_token = "</s>" if "</s>" in specials else ""
        self.eos_token_ids = frozenset(specials[t] for t in ("</s>", "<|im_end|>") if t in specials)
        self.adds_bos = adds_bos and self.bos_token_id is not None
        self.fim = None
        self._text = {i: text for text, i in specials.items()}
        self._pattern = re.compile("|".join(map(re.escape, specials)) or r"(?!)")

    def encode(
        self, text: str, *, add_special_tokens: bool = False, parse_special: bool = False
    ) -> list[int]:
        ids = self.encode_segments((text,))[0] if parse_special else list(text.encode())
        if add_special_tokens and self.adds_bos and self.bos_token_id is not None:
            ids.insert(0, self.bos_token_id)
        return ids

    def encode_segments(self, segments: Iterable[str]) -> tuple[list[int], list[tuple[int, int]]]:
        ids: list[int] = []
        marks: list[tuple[int, int]] = []
        num_chars = 0
        for segment in segments:
            position = 0
            for match in self._pattern.finditer(segment):
                ids += segment[position : match.start()].encode()
                marks.append((num_chars + match.start(), len(ids)))
                ids.append(self.special_tokens[match.group()])
                marks.append((num_chars + match.end(), len(ids)))
                position = match.end()
            ids += segment[position:].encode()
            num_chars += len(segment)
        return ids, [*marks, (num_chars, len(ids))]

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        kept = (self.token_bytes(i) for i in ids if not (skip_special_tokens and self.is_special(i)))
        return b"".join(kept).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else self._text[token_id].encode()

    def token_text(self, token_id: int) -> str:
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def is_special(self, token_id: int) -> bool:
        return token_id >= 256
