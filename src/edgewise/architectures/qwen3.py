"""Qwen 3, dense: RMSNorm on each head of q and k, no biases, a head size of its own."""

from edgewise.architectures.family import Family

FAMILY = Family(name="qwen3", qk_norm=True)
