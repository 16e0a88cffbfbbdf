"""Llama 1-3, SmolLM2, TinyLlama, Mistral and every other model whose GGUF file says `llama`.

The GGUF converter permutes the rows of q and k so that rotary pairs are neighbours. Llama 3's frequency scaling is stored
as the tensor rope_freqs.weight.
"""

from edgewise.architectures.family import Family

FAMILY = Family(name="llama", pairing="interleaved")
