"""Qwen 1.5, 2 and 2.5 (also Coder): biases on q, k and v. The sliding window of their configs is off in every release."""

from edgewise.architectures.family import Family

FAMILY = Family(name="qwen2")
