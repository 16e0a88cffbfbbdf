"""What the engine reports to listeners (metrics, logs): one record a step and one a request. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from edgewise.core.requests import FinishReason, RequestTimings


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step that ran to its end. Times in seconds."""

    step_s: float  # of the decoder alone
    num_prefill_rows: int
    num_decode_rows: int
    num_generated_tokens: int
    num_preempted: int
    first_token_s: tuple[
        float, ...
    ]  # for each sequence whose first token this step gave: since its request arrived
    inter_token_s: tuple[float, ...]  # for each other sequence that got a token: since its last one


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that ended, all its choices together."""

    request_id: str
    finish_reason: FinishReason  # of the last choice to end
    finish_reasons: tuple[FinishReason, ...]  # of every choice, in the order they ended
    num_choices: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_generated_tokens: int  # with the tokens that stopped a choice, which no event carries
    num_preemptions: int
    max_tokens: int  # of each choice, after clamping to the window
    timings: RequestTimings  # scheduled_s, first_token_s: 0.0 where it ended before

    @property
    def queue_s(self) -> float:
        """From arrival to the first step that ran it; to the end where none did."""
        return (self.timings.scheduled_s or self.timings.finished_s) - self.timings.arrival_s

    @property
    def prefill_s(self) -> float:
        """From the first step to the first token."""
        if not self.timings.scheduled_s:
            return 0.0
        return (self.timings.first_token_s or self.timings.finished_s) - self.timings.scheduled_s

    @property
    def decode_s(self) -> float:
        """From the first token to the end."""
        return self.timings.finished_s - self.timings.first_token_s if self.timings.first_token_s else 0.0

    @property
    def first_token_s(self) -> float | None:
        """From arrival to the first token; None where there was none."""
        return self.timings.first_token_s - self.timings.arrival_s if self.timings.first_token_s else None

    @property
    def total_s(self) -> float:
        return self.timings.finished_s - self.timings.arrival_s


class EngineListener(Protocol):
    """Told about steps and requests on the engine thread; must be quick. An exception is logged and changes nothing."""

    def on_step(self, record: StepRecord) -> None: ...

    def on_finish(self, record: RequestRecord) -> None: ...
