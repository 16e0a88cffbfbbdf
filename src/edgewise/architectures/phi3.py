"""Phi-3, Phi-3.5 mini and Phi-4 mini: fused q/k/v and gate/up, longrope, partial rotation, sliding window where one is set."""

from edgewise.architectures.family import Family, sliding_everywhere

FAMILY = Family(name="phi3", fused=True, sliding_window=True, attention=sliding_everywhere)
