"""Probes of the other APIs: Anthropic's messages and their count, Responses. Where a server lacks one the gateway translates."""

from __future__ import annotations

from typing import Any

from edgewise.gateway.asking import ABSENT
from edgewise.gateway.doctor.patient import Patient
from edgewise.gateway.doctor.probe import Finding, Probe, found, not_measured, passed
from edgewise.gateway.profile import Api, Fault

_LACKS = Finding(note="not offered: the gateway translates", translated=True)


def _message(patient: Patient) -> dict[str, Any]:
    turn = {"role": "user", "content": "Say yes."}
    return {"model": patient.model, "messages": [turn], "system": "Answer in one word.", "max_tokens": 4}


async def messages(patient: Patient) -> Finding:
    streamed = await patient.stream(Api.MESSAGES.value, _message(patient))
    if streamed.status in ABSENT:
        return _LACKS
    if not streamed.ok:
        return found(Fault.MESSAGE_EVENTS, f"{streamed.status} {streamed.error[:100]}")
    kinds = [event.get("type") for event in streamed.events]
    if kinds[:1] != ["message_start"] or kinds[-1:] != ["message_stop"] or "message_delta" not in kinds:
        return found(Fault.MESSAGE_EVENTS, f"its events are {', '.join(map(str, kinds[:3]))} ...")
    if kinds != streamed.names:
        return found(Fault.MESSAGE_EVENTS, "events do not have their types as names")
    return passed()


async def count_tokens(patient: Patient) -> Finding:
    body = _message(patient)
    counted = await patient.post(Api.COUNT_TOKENS.value, {k: v for k, v in body.items() if k != "max_tokens"})
    if counted.status in ABSENT:
        return _LACKS
    answered = await patient.post(Api.MESSAGES.value, body)
    if not (counted.ok and answered.ok):
        return not_measured(f"{counted.status}, {answered.status}")
    usage = answered.body.get("usage") or {}
    told = sum(
        usage.get(name) or 0
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    said = counted.body.get("input_tokens")
    return passed() if said == told else found(Fault.COUNT_TOKENS, f"counted {said}, then used {told}")


async def responses(patient: Patient) -> Finding:
    body = {"model": patient.model, "input": "Say yes.", "max_output_tokens": 16, "store": False}
    streamed = await patient.stream(Api.RESPONSES.value, body)
    if streamed.status in ABSENT:
        return _LACKS
    if not streamed.ok:
        return found(Fault.RESPONSE_EVENTS, f"{streamed.status} {streamed.error[:100]}")
    kinds = [str(event.get("type")) for event in streamed.events]
    ends = kinds[-1:] in (["response.completed"], ["response.incomplete"])
    if kinds[:1] != ["response.created"] or not ends:
        return found(Fault.RESPONSE_EVENTS, f"its events are {', '.join(kinds[:3])} ...")
    if any("sequence_number" not in event for event in streamed.events):
        return found(Fault.RESPONSE_EVENTS, "events have no sequence_number")
    numbers = [event["sequence_number"] for event in streamed.events]
    if any(not isinstance(number, int) for number in numbers) or numbers != sorted(set(numbers)):
        return found(Fault.RESPONSE_EVENTS, f"sequence numbers do not rise: {numbers[:4]}")
    return passed()


PROBES = (
    Probe("messages", "Anthropic's messages are spoken", (Fault.MESSAGE_EVENTS,), messages),
    Probe(
        "count tokens", "count_tokens tells what the request then uses", (Fault.COUNT_TOKENS,), count_tokens
    ),
    Probe("responses", "the Responses API is spoken", (Fault.RESPONSE_EVENTS,), responses),
)
