"""EngineConfig: sizes and policies of the engine, all decided by the caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgewise.core.errors import ConfigError
from edgewise.decoder.batch import DecoderRunner

SchedulingPolicy = Literal["fcfs", "priority", "lpm"]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How much runs at once and who goes first.

    max_model_len: tokens of prompt and output together; needs so many KV slots.
    max_num_batched_tokens: most rows of one step.
    max_waiting: requests accepted but not yet running; more are refused with OverloadedError. None: no bound (in-process use).
    scheduling_policy: "fcfs" by arrival; "priority" by the request's number, then arrival; "lpm" longest cached prefix first.
    """

    max_model_len: int
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 512
    max_waiting: int | None = None
    scheduling_policy: SchedulingPolicy = "fcfs"
    enable_prefix_caching: bool = True
    enable_jump_forward: bool = (
        True  # tokens a grammar forces are taken at once, not one a step; which they are is the same
    )
    cache_fingerprint: str = ""  # of the model and its layout: names blocks outside this process
    # While others decode, a step may take this long; a prefill chunk gets what their rows leave of it.
    step_budget_s: float = 0.25
    # While nobody decodes: whoever comes meanwhile waits for the step. Shorter chunks read the weights more often for the same work.
    lone_step_budget_s: float = 2.0
    # Ageing, so that nothing starves: this much waiting makes up for one level of priority, or for so many cached tokens.
    priority_ageing_s: float = 30.0
    lpm_ageing_tokens_per_s: float = 256.0
    # Longest a thread keeps the interpreter while another wants it. CPython's 5 ms is longer than a decode step of a small model.
    switch_interval_s: float = 0.001

    def check(self, decoder: DecoderRunner) -> None:
        """Raises ConfigError where the decoder's memory cannot hold what this asks for."""
        slots = decoder.num_blocks * decoder.block_size
        _require(self.max_model_len >= 1, f"max_model_len must be at least 1, got {self.max_model_len}")
        _require(self.max_num_seqs >= 1, f"max_num_seqs must be at least 1, got {self.max_num_seqs}")
        _require(
            self.max_model_len <= slots,
            f"max_model_len ({self.max_model_len}) does not fit: {decoder.num_blocks} KV blocks hold {slots} tokens",
        )
        _require(
            self.max_num_seqs <= self.max_num_batched_tokens <= decoder.max_rows,
            f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least max_num_seqs ({self.max_num_seqs})"
            f" and at most the decoder's {decoder.max_rows} rows",
        )
        _require(
            self.max_num_seqs <= decoder.max_outputs,
            f"max_num_seqs ({self.max_num_seqs}) is more than the decoder's {decoder.max_outputs} output rows",
        )
        _require(
            self.scheduling_policy in ("fcfs", "priority", "lpm"),
            f"scheduling_policy must be fcfs, priority or lpm, got {self.scheduling_policy!r}",
        )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
