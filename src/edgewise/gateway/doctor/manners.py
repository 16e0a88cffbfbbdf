"""Probes of how a server behaves over time: whether it stops for a client that left, and shows that it lives while it reads a long prompt."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from typing import Any

from edgewise.gateway.doctor.patient import Patient
from edgewise.gateway.doctor.probe import Finding, Probe, found, not_measured, passed
from edgewise.gateway.profile import Fault
from edgewise.protocols.sse import SseParser

_STORY = "Write a very long story about a lighthouse and its keeper, of two thousand words at least."
_LONG_TOKENS = 512
_READ_PIECES = 8
_SHORTEST_REST_S = 1.0  # what is left of an answer must last longer than it takes to notice that nobody reads
_LONGEST_WAIT_S = 5.0
_POLL_S = 0.05
_REST_S = 1.0
_GAUGES = re.compile(
    r"^(?:vllm:num_requests_running|llamacpp:requests_processing|edgewise_gateway_in_flight)(?:\{.*\})? ([0-9.e+]+)",
    re.MULTILINE,
)
_PROMPT_SHARE = 0.9  # of the longest prompt: it is not known to the token what a prompt costs
_MARGIN = 1.3  # a longer prompt is read a little faster or slower than its estimate


async def _num_running(patient: Patient) -> int | None:
    """What the server says it is answering now: in its metrics, in its list of slots, or in its health."""
    reply = await patient.get("/metrics")
    if reply.status_code == 200 and (values := _GAUGES.findall(reply.text)):
        return sum(int(float(value)) for value in values)
    for path in ("/slots", "/health"):
        reply = await patient.get(path)
        try:
            value = reply.json() if reply.status_code == 200 else None
        except ValueError:
            continue
        if isinstance(value, list) and value:
            return sum(isinstance(slot, dict) and slot.get("is_processing") is True for slot in value)
        if isinstance(value, dict) and isinstance(value.get("active_requests"), int):
            return int(value["active_requests"])
    return None


async def _at_rest(patient: Patient) -> int | None:
    """What it answers once earlier questions are done with; others may be asking it too."""
    until_s = time.monotonic() + _REST_S
    while (running := await _num_running(patient)) and time.monotonic() < until_s:
        await asyncio.sleep(_POLL_S)
    return running


async def cancel(patient: Patient) -> Finding:
    """A long answer is left after its first words, and what the server does then is asked of itself."""
    idle = await _at_rest(patient)
    if idle is None:
        return not_measured("the server does not tell what it is doing")
    times: list[float] = []
    running = idle
    body = patient.chat_body(_STORY, max_tokens=_LONG_TOKENS)
    async for at_s, _ in patient.arrivals(body, until=lambda piece: len(times) > _READ_PIECES):
        times.append(at_s)
        if len(times) == _READ_PIECES:
            running = await _num_running(patient) or 0
    left_s = time.monotonic()
    if len(times) < _READ_PIECES or running <= idle:
        return not_measured("the model says too little, or says it too quickly")
    step_s = (times[-1] - times[1]) / (len(times) - 2)
    rest_s = step_s * (_LONG_TOKENS - len(times))
    if rest_s < _SHORTEST_REST_S:
        return not_measured(f"the rest of the answer takes only {rest_s:.1f} s")
    patience_s = min(rest_s / 4, max(_LONGEST_WAIT_S, 4 * step_s))  # a server notices between two steps
    while (waited_s := time.monotonic() - left_s) < patience_s:
        if (await _num_running(patient) or 0) <= idle:
            return passed(f"it stopped within {waited_s:.1f} s")
        await asyncio.sleep(_POLL_S)
    return found(Fault.NO_CANCEL, f"it still works {waited_s:.1f} s after its client left")


def _items(count: int) -> str:
    """A prompt that no server has seen before."""
    return (
        f"List {time.monotonic_ns()}: "
        + " ".join(f"Item {i} is {i * 7}." for i in range(count))
        + " Say yes."
    )


async def keep_alive(patient: Patient) -> Finding:
    """A prompt that takes longer to read than a stream should be silent; how long is estimated from a shorter one."""
    took_s, short = await patient.seconds_of(_items(60))
    if not (short.ok and short.prompt_tokens) or patient.window is None:
        return not_measured("the server does not tell its window, or what a prompt costs")
    second_tokens = short.prompt_tokens / took_s
    needed, room = _MARGIN * patient.silence_s * second_tokens, _PROMPT_SHARE * patient.window
    if needed > room:
        return not_measured(
            f"its longest prompt is read in about {room / second_tokens:.1f} s, before a sign is due"
        )
    body = patient.chat_body(_items(int(60 * needed / short.prompt_tokens)), max_tokens=1)
    parser = SseParser()
    times = [
        at_s
        async for at_s, _ in patient.arrivals(body, until=lambda piece: any(map(_says, parser.feed(piece))))
    ]
    if len(times) < 2:
        return not_measured("the long prompt was refused")
    silences = [later - earlier for earlier, later in itertools.pairwise(times)]
    whole_s = times[-1] - times[0]
    if whole_s < patient.silence_s:
        return not_measured(f"the prompt was read in {whole_s:.1f} s, before a sign is due")
    if max(silences) > patient.silence_s:
        return found(Fault.SILENT_PREFILL, f"silent for {max(silences):.1f} s")
    return passed(f"never silent for more than {max(silences):.1f} s of {whole_s:.1f}")


def _says(event: Any) -> bool:
    """Whether an event of a chat is more than a sign of life."""
    return (
        re.search(rb'"(content|reasoning_content|reasoning|finish_reason)": ?"[^"]', event.data) is not None
    )


PROBES = (
    Probe(
        "keep-alive", "signs of life come while a long prompt is read", (Fault.SILENT_PREFILL,), keep_alive
    ),
    Probe("cancel", "it stops when its client leaves", (Fault.NO_CANCEL,), cancel),
)
"""The last one is the last of all: a server that goes on would answer the next question late."""
