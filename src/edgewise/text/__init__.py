"""Tokenizers and incremental detokenising. Imports core only."""

from edgewise.text.specials import FimTokens
from edgewise.text.stream import TextChunk, TextStream
from edgewise.text.tokenizer import Tokenizer

__all__ = ["FimTokens", "TextChunk", "TextStream", "Tokenizer"]
