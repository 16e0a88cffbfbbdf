"""Mistral, for files that say so themselves (most say `llama`): Llama with an optional sliding window in every layer."""

from edgewise.architectures.family import Family, sliding_everywhere

FAMILY = Family(name="mistral", pairing="interleaved", sliding_window=True, attention=sliding_everywhere)
