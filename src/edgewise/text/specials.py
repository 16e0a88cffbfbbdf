"""Tokens that are found before merging: control tokens and user-defined ones; which of them end a text or mark a gap."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgewise.core.errors import TokenizerError
from edgewise.text.vocabulary import CONTROL

END_TOKENS = frozenset(
    {
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|calls|>",
        "<|flush|>",
        "<end_of_turn>",
        "<turn|>",
        "<|tool_response>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
        "</s>",
        "<eos>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "[e~[",
        "<|fim_pad|>",
        "<fim_pad>",
        "<|fim_repo|>",
        "<|repo_name|>",
        "<|file_sep|>",
    }
)
"""Texts that end a generation wherever a vocabulary has them (the set llama.cpp stops on)."""

_FIM_TEXTS = {
    "prefix": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
    ),
    "suffix": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
    ),
    "middle": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
    ),
}


def corrected_types(tokens: Sequence[str], types: Sequence[int]) -> list[int]:
    """`types` with the well-known end tokens as control tokens.

    Converters forget to mark them, and a text that ends generations must not come from a user. `</s>` is also HTML, and a
    token of that meaning in Gemma's vocabulary: it follows `<s>`.
    """
    ids = {text: i for i, text in enumerate(tokens) if text in END_TOKENS or text == "<s>"}
    if "<s>" not in ids or types[ids["<s>"]] != CONTROL:
        ids.pop("</s>", None)
    ids.pop("<s>", None)
    corrected = list(types)
    for i in ids.values():
        corrected[i] = CONTROL
    return corrected


@dataclass(frozen=True, slots=True)
class FimTokens:
    """Ids for fill-in-the-middle prompts: prefix, text before, suffix, text after, middle."""

    prefix: int
    suffix: int
    middle: int


def end_token_ids(specials: Mapping[str, int], declared: Iterable[int]) -> frozenset[int]:
    """The ids that end a text: the declared ones and the well-known texts among the control tokens `specials`.

    Harmony and Solar vocabularies close every message with `<|end|>` and a turn with another token, and Gemma 4 keeps an
    unused `</s>`; there those two do not end the text.
    """
    found = {text for text in END_TOKENS if text in specials}
    if "<|end|>" in found and ({"<|return|>", "<|call|>"} <= found or {"<|calls|>", "<|flush|>"} <= found):
        found.discard("<|end|>")
    if "<|tool_response>" in found:
        found.discard("</s>")
    return frozenset(declared) | {specials[text] for text in found}


def fim_tokens(specials: Mapping[str, int], declared: Mapping[str, int]) -> FimTokens | None:
    """The fill-in-the-middle tokens, declared by key or known by text; None unless all three exist."""
    ids: list[int] = []
    for key, part in (("fim_pre", "prefix"), ("fim_suf", "suffix"), ("fim_mid", "middle")):
        known = (specials[text] for text in _FIM_TEXTS[part] if text in specials)
        token = declared.get(key, next(known, None))
        if token is None:
            return None
        ids.append(token)
    return FimTokens(*ids)


class TokenFinder:
    """Finds the leftmost, then longest, occurrences of a set of token texts.

    One pattern made from a trie, so shared beginnings are tried once: linear in the text for any real vocabulary.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = frozenset(texts)
        self._pattern: re.Pattern[str] | None = None

    def search(self, text: str, position: int = 0) -> re.Match[str] | None:
        """The first occurrence at or after `position`."""
        if not self.texts:
            return None
        if (
            self._pattern is None
        ):  # made late: 6,000 tokens take 0.2 s, and many vocabularies are opened only to be looked at
            self._pattern = _compile(self.texts)
        return self._pattern.search(text, position)


class _Node:
    """A trie node: what may follow, and whether a token ends here."""

    __slots__ = ("children", "ends")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.ends = False


def _compile(texts: Iterable[str]) -> re.Pattern[str]:
    root = _Node()
    for text in texts:
        node = root
        for char in text:
            node = node.children.setdefault(char, _Node())
        node.ends = True
    try:
        return re.compile(_pattern(root))
    except RecursionError:
        raise TokenizerError("the control tokens of this vocabulary are nested too deeply") from None


def _pattern(node: _Node) -> str:
    """The regular expression that takes the longest way down from `node`."""
    prefix = ""
    while len(node.children) == 1 and not node.ends:  # a chain needs no group, and no recursion
        char, node = next(iter(node.children.items()))
        prefix += re.escape(char)
    if not node.children:
        return prefix
    options, leaves = [], ""
    for char, child in node.children.items():
        if child.children:
            options.append(re.escape(char) + _pattern(child))
        else:
            leaves += re.escape(char)
    if leaves:
        options.append(f"[{leaves}]")
    return f"{prefix}(?:{'|'.join(options)}){'?' if node.ends else ''}"
