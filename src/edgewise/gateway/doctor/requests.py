"""Probes of what a request may hold, and of how one that cannot be met is refused."""

from __future__ import annotations

import re

from edgewise.gateway.doctor.patient import Answer, Patient
from edgewise.gateway.doctor.probe import Finding, Probe, found, not_measured, passed
from edgewise.gateway.profile import Api, Fault

_HUGE = 100_000
_FEW = 4
_LONGEST_TOKEN_CHARS = 24
_MAX_SENT_TOKENS = 200_000
_UNKNOWN = {"user": "doctor", "store": False, "x_not_a_field": 1}
_OVERFLOW = re.compile(r"context|too long|exceed|maximum.*tokens|too large", re.IGNORECASE)


def _said(answer: Answer) -> str:
    return f"{answer.status} {answer.error}".strip()


async def unknown_fields(patient: Patient) -> Finding:
    answer = await patient.chat("Say yes.", max_tokens=1, **_UNKNOWN)
    return passed() if answer.ok else found(Fault.UNKNOWN_FIELDS, _said(answer))


async def model_name(patient: Patient) -> Finding:
    answer = await patient.chat("Say yes.", max_tokens=1, model="claude-not-served-here")
    return passed() if answer.ok else found(Fault.MODEL_NAME, _said(answer))


async def max_tokens(patient: Patient) -> Finding:
    """A limit beyond the window, as coding tools send it (the answer is cut off at its first event); and one that an answer would pass."""
    streamed = await patient.stream(
        Api.CHAT.value, patient.chat_body("Say yes.", max_tokens=_HUGE), stop_after=1
    )
    if not streamed.ok:
        return found(Fault.MAX_TOKENS, streamed.error[:200])
    short = await patient.chat("Count from one to thirty in words.", max_tokens=_FEW)
    said = (short.body.get("usage") or {}).get("completion_tokens")
    if short.ok and ((said or 0) > _FEW or len(short.text) > _FEW * _LONGEST_TOKEN_CHARS):
        return found(Fault.LIMIT_IGNORED, f"{said} tokens where {_FEW} were the limit: {short.text[:40]!r}")
    return passed()


async def error_shape(patient: Patient) -> Finding:
    """What is wrong with a request is a 400 that says so."""
    broken = await patient.post(Api.CHAT.value, b'{"messages": [')
    empty = await patient.chat([], max_tokens=1)
    for what, answer in (("malformed JSON", broken), ("no messages", empty)):
        if not 400 <= answer.status < 500 or answer.status == 422 or not answer.error:
            return found(Fault.ERROR_SHAPE, f"{what}: {_said(answer)}")
    return passed()


async def overflow(patient: Patient) -> Finding:
    """A prompt far beyond the window is refused, in words that coding tools know."""
    window = patient.window
    if window is None:
        return not_measured("the server does not tell its window")
    if window > _MAX_SENT_TOKENS:
        return not_measured(
            f"the window has {window:,} tokens: a prompt beyond it would be too large to send"
        )
    answer = await patient.chat("one " * (window + 1000), max_tokens=1)
    if answer.ok:
        return found(Fault.OVERFLOW, f"a prompt of more than {window:,} tokens was answered")
    if not 400 <= answer.status < 500 or not _OVERFLOW.search(answer.error):
        return found(Fault.OVERFLOW, _said(answer))
    return passed()


async def auth(patient: Patient) -> Finding:
    if patient.key is None:
        return not_measured("no key was given")
    wrong = {"authorization": "Bearer not-the-key", "x-api-key": "not-the-key"}
    answer = await patient.post(Api.CHAT.value, patient.chat_body("Say yes.", max_tokens=1), wrong)
    return (
        passed() if answer.status in (401, 403) else found(Fault.OPEN_DOOR, f"a wrong key: {answer.status}")
    )


PROBES = (
    Probe("unknown fields", "unknown fields are ignored", (Fault.UNKNOWN_FIELDS,), unknown_fields),
    Probe("model name", "any model name is answered", (Fault.MODEL_NAME,), model_name),
    Probe(
        "max tokens",
        "a limit above the window is clamped, and limits are kept to",
        (Fault.MAX_TOKENS, Fault.LIMIT_IGNORED),
        max_tokens,
    ),
    Probe("error shape", "bad input is a 400 with a message", (Fault.ERROR_SHAPE,), error_shape),
    Probe("overflow", "a prompt too long is refused clearly", (Fault.OVERFLOW,), overflow),
    Probe("auth", "a wrong key is refused", (Fault.OPEN_DOOR,), auth),
)
