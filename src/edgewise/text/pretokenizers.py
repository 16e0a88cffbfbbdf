"""How byte-level BPE vocabularies cut text into words before merging: one entry per kind named in `tokenizer.ggml.pre`.

The patterns are those of the models' published tokenizer.json files, in the syntax of the `tokenizers` library. They run one
after another, each on the pieces the former left; text that no pattern matches stays a piece of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgewise.core.errors import TokenizerError

_CONTRACTIONS = r"'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = _CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ENDINGS = rf"(?i:{_CONTRACTIONS})"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _words(digits: str, *, letters: str = r"\p{L}+", other: str = r" ?[^\s\p{L}\p{N}]+[\r\n]*") -> str:
    """The pattern shared by the cl100k family; members differ in how they group digits, letters and punctuation."""
    return rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?{letters}|{digits}|{other}|{_SPACES}"


def _cased(digits: str, *, endings: str = "") -> str:
    """The pattern of the o200k family: words end where lower case is followed by upper case."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{lead}{upper}*{lower}+{endings}|{lead}{upper}+{lower}*{endings}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


_ASCII_PUNCTUATION_WORD = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
_DEEPSEEK_CJK = r"[一-龥ࠀ-一가-퟿]+"
_DEEPSEEK_LETTERS = (
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ"
    r"ὐ-ὗὙὛὝὟ-\x{1f7d}ᾀ-ᾴᾶ-ᾼ\x{1fbe}ῂ-ῄῆ-ῌῐ-\x{1fd3}ῖ-\x{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿ"
    r"ﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One kind. `whole_words`: a word that is a token needs no merges. `adds_bos`: where the file does not say."""

    patterns: tuple[str, ...]
    whole_words: bool = False
    adds_bos: bool = False


_GPT2_KIND = PreTokenizer((_GPT2,))
_DIGIT_WISE = PreTokenizer((r"\p{N}", _GPT2))
_LLAMA3 = PreTokenizer((_words(r"\p{N}{1,3}"),), whole_words=True, adds_bos=True)
_CL100K = PreTokenizer((_words(r"\p{N}{1,3}"),))
_QWEN2 = PreTokenizer((_words(r"\p{N}"),))
_O200K = PreTokenizer((_cased(r"\p{N}{1,3}", endings=_ENDINGS + "?"),))
_DEEPSEEK_V3 = PreTokenizer(
    (
        r"\p{N}{1,3}",
        r"[一-龥぀-ゟ゠-ヿ]+",
        _ASCII_PUNCTUATION_WORD
        + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)
_BAILING = PreTokenizer(
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    )
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    **dict.fromkeys(
        ("gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "gigachat", "mellum", "a.x-4.0", "trillion"),
        _GPT2_KIND,
    ),
    "granite-docling": _GPT2_KIND,
    **dict.fromkeys(
        ("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"),
        _DIGIT_WISE,
    ),
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"), _LLAMA3
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _CL100K),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "kormo", "stablelm2", "hunyuan", "megrez", "solar-open", "grok-2"),
        _QWEN2,
    ),
    "qwen35": PreTokenizer(
        (_words(r"\p{N}", letters=r"[\p{L}\p{M}]+", other=r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"),)
    ),
    "laguna": PreTokenizer((r"[^\n]+|[\n]+", *_QWEN2.patterns)),
    "seed-coder": PreTokenizer((_words(r"\p{N}", other=r" ?[^\s\p{L}\p{N}\r\n]+"),)),
    "minicpm5": PreTokenizer((r"\p{N}{1,3}", _words(r"\p{N}+")), whole_words=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2"), _O200K),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), PreTokenizer((r"\d{1,3}(?=(?:\d{3})*\b)", *_O200K.patterns))),
    "tekken": PreTokenizer((_cased(r"\p{N}"),), whole_words=True, adds_bos=True),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "deepseek-llm": PreTokenizer(
        (
            r"[\r\n]",
            _DEEPSEEK_LETTERS,
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            _DEEPSEEK_CJK,
            r"\p{N}+",
        )
    ),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm"), _DEEPSEEK_V3),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING),
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
}


def pre_tokenizer(kind: str) -> PreTokenizer:
    """The entry of `kind`. Raises TokenizerError naming a kind that is not in the table."""
    try:
        return PRE_TOKENIZERS[kind]
    except KeyError:
        raise TokenizerError(
            f"tokenizer.ggml.pre: unknown pre-tokenizer kind {kind!r}",
            hint="this vocabulary cuts words by rules this version does not know",
        ) from None
