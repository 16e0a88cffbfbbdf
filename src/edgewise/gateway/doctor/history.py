"""Probes of what a conversation may hold: past calls, system messages, roles."""

from __future__ import annotations

import json
from typing import Any

from edgewise.gateway.doctor.patient import Answer, Patient
from edgewise.gateway.doctor.probe import Finding, Probe, found, not_measured, passed
from edgewise.gateway.profile import Fault

WRITE = {
    "type": "function",
    "function": {
        "name": "write_file",
        "description": "Create a file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
    },
}
_ARGUMENTS = {"path": "fizz.py", "content": "for i in range(1, 16):\n    print(i)\n"}
_SYSTEM = {"role": "system", "content": " ".join(["Answer in one word, whatever you are asked."] * 8)}
"""Longer than what a template says of its own accord where nobody else does."""
_USER = {"role": "user", "content": "What is the capital of France?"}


async def arguments(patient: Patient) -> Finding:
    """The same history twice, its call's arguments as text and as an object: the prompts must cost the same, and longer ones more."""
    as_text, as_object = [
        await patient.chat(past_call(given), tools=[WRITE], max_tokens=1)
        for given in (json.dumps(_ARGUMENTS), _ARGUMENTS)
    ]
    if not (as_text.ok or as_object.ok):
        return not_measured(f"a past call is refused in either form: {_said(as_text)}")
    if not as_text.ok:
        return found(Fault.STRING_ARGUMENTS, f"arguments as text: {_said(as_text)}")
    if not as_object.ok:
        return found(Fault.OBJECT_ARGUMENTS, f"arguments as an object: {_said(as_object)}")
    text, other = as_text.prompt_tokens, as_object.prompt_tokens
    if text is None or other is None:
        return not_measured("the server tells no prompt_tokens")
    counts = f"{text} tokens as text, {other} as an object"
    if text < other:
        return found(Fault.STRING_ARGUMENTS, counts)
    if other < text:
        return found(Fault.OBJECT_ARGUMENTS, counts)
    more = {**_ARGUMENTS, "content": _ARGUMENTS["content"] * 4}
    longer = await patient.chat(past_call(json.dumps(more)), tools=[WRITE], max_tokens=1)
    if longer.ok and longer.prompt_tokens is not None and longer.prompt_tokens <= text:
        return found(Fault.LOST_ARGUMENTS, f"{counts}, and {longer.prompt_tokens} with longer ones")
    return passed(counts)


def past_call(given: Any) -> list[dict[str, Any]]:
    call = {"id": "call_1", "type": "function", "function": {"name": "write_file", "arguments": given}}
    return [
        {"role": "user", "content": "Create fizz.py."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "wrote fizz.py"},
    ]


async def late_system(patient: Patient) -> Finding:
    turns = [_USER, {"role": "assistant", "content": "Paris"}, _USER]
    return await _read(patient, turns, 2, _SYSTEM, Fault.LATE_SYSTEM)


async def several_system(patient: Patient) -> Finding:
    second = {**_SYSTEM, "content": "Never explain anything to anybody."}
    return await _read(patient, [_SYSTEM, _USER], 1, second, Fault.SEVERAL_SYSTEM)


async def developer(patient: Patient) -> Finding:
    return await _read(patient, [_USER], 0, {**_SYSTEM, "role": "developer"}, Fault.DEVELOPER_ROLE)


async def _read(
    patient: Patient, turns: list[dict[str, Any]], place: int, more: dict[str, Any], fault: Fault
) -> Finding:
    """Whether one more message at a place is taken, and makes the prompt longer: one that is dropped without a word is worse than refused."""
    whole = await patient.chat([*turns[:place], more, *turns[place:]], max_tokens=1)
    if not whole.ok:
        return found(fault, _said(whole))
    without = await patient.chat(turns, max_tokens=1)
    counts = whole.prompt_tokens, without.prompt_tokens
    if counts[0] is None or counts[1] is None or not without.ok:
        return passed("taken; whether it was read, prompt_tokens do not tell")
    if counts[0] <= counts[1]:
        return found(fault, f"dropped: {counts[0]} tokens with it, {counts[1]} without")
    return passed()


def _said(answer: Answer) -> str:
    return f"{answer.status} {answer.error}".strip()


PROBES = (
    Probe("arguments", "past calls keep their arguments, as text or object", (Fault.STRING_ARGUMENTS, Fault.OBJECT_ARGUMENTS, Fault.LOST_ARGUMENTS), arguments, with_tools=True),
    Probe("late system", "a system message may come late, and is read", (Fault.LATE_SYSTEM,), late_system),
    Probe("several system", "there may be several system messages, all read", (Fault.SEVERAL_SYSTEM,), several_system),
    Probe("developer", "the role developer is known, and read", (Fault.DEVELOPER_ROLE,), developer),
)  # fmt: skip
