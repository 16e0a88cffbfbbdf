"""Facts about a tokenizer.json that somebody else wrote: what its parts and a tokenizer_config.json beside it say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from edgewise.core.errors import TokenizerError
from edgewise.text.facts import TokenizerFacts
from edgewise.text.specials import END_TOKENS, end_token_ids, fim_tokens


def published_facts(content: Mapping[str, Any], config: Mapping[str, Any]) -> TokenizerFacts:
    """Read the facts; marks well-known end tokens in `content` as special on the way.

    Raises TokenizerError for kinds of tokenizer that would not be exact here, naming the part.
    """
    ids: dict[str, int] = {}
    for token in content["added_tokens"]:
        token["special"] = token["special"] or token["content"] in END_TOKENS - {"</s>"}
        if token["special"]:
            ids[token["content"]] = token["id"]
    before, after = _surrounding(content.get("post_processor"))
    bos, eos = (ids.get(_text(config.get(name))) for name in ("bos_token", "eos_token"))
    metaspaces = [part for part in _parts(content, "pre_tokenizer") if part["type"] == "Metaspace"]
    if any(part.get("prepend_scheme") == "first" for part in metaspaces):
        raise TokenizerError(
            "tokenizer.json: pre_tokenizer Metaspace with prepend_scheme 'first' is not supported"
        )
    prepends = any(part["type"] == "Prepend" for part in _parts(content, "normalizer"))
    return TokenizerFacts(
        kind=_kind(content),
        bos_token_id=ids.get(before, bos) if before else bos,
        eos_token_id=ids.get(after, eos) if after else eos,
        eos_token_ids=end_token_ids(ids, () if eos is None else (eos,)),
        adds_bos=bool(before),
        adds_eos=bool(after),
        add_space_prefix=prepends or any(part.get("prepend_scheme") != "never" for part in metaspaces),
        cuts_at_spaces=False,  # nobody has looked at its patterns
        fim=fim_tokens(ids, {}),
    )


def _kind(content: Mapping[str, Any]) -> Literal["byte_level", "sentencepiece"]:
    model = content["model"]
    if model.get("type") != "BPE":
        raise TokenizerError(f"tokenizer.json: models of type {model.get('type')!r} are not supported")
    if any(part["type"] == "ByteLevel" for part in _parts(content, "pre_tokenizer")):
        return "byte_level"
    if model.get("byte_fallback"):
        return "sentencepiece"
    raise TokenizerError(
        "tokenizer.json: neither byte-level nor with byte fallback; such BPE is not supported"
    )


def _parts(content: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    """The normalizer's or pre-tokenizer's steps, a sequence taken apart."""
    part = content.get(name)
    if part is None:
        return
    if part["type"] == "Sequence":
        yield from part.get("normalizers", part.get("pretokenizers", []))
    else:
        yield part


def _surrounding(processor: Mapping[str, Any] | None) -> tuple[str, str]:
    """The tokens that the post-processor puts before and after a single text, or ""."""
    if processor is None:
        return "", ""
    if processor["type"] == "Sequence":
        found = [_surrounding(part) for part in processor["processors"]]
        return next((b for b, _ in found if b), ""), next((a for _, a in found if a), "")
    if processor["type"] != "TemplateProcessing":
        return "", ""
    names = [item.get("SpecialToken", {}).get("id", "") for item in processor["single"]]
    return (names[0], names[-1]) if len(names) > 1 else ("", "")


def _text(token: Any) -> str:
    """A token as tokenizer_config.json names it: a string, or an object with its content."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")
