"""Probes that everything else rests on: where one of them fails, what depends on it tells nothing and is not asked."""

from __future__ import annotations

from edgewise.gateway.doctor.history import WRITE
from edgewise.gateway.doctor.patient import Patient
from edgewise.gateway.doctor.probe import Finding, Probe, found, passed
from edgewise.gateway.profile import Fault


async def chat(patient: Patient) -> Finding:
    answer = await patient.chat("Say yes.", max_tokens=4)
    if not answer.ok:
        return found(Fault.NO_CHAT, f"{answer.status} {answer.error}".strip())
    if not answer.body.get("choices"):
        return found(Fault.NO_CHAT, "a 200 that is no chat completion")
    return passed()


async def tools(patient: Patient) -> Finding:
    """vLLM wants flags for it, and says which in its refusal."""
    answer = await patient.chat("Say yes.", tools=[WRITE], max_tokens=1)
    return passed() if answer.ok else found(Fault.TOOLS_REFUSED, f"{answer.status} {answer.error}".strip())


CHAT = Probe("chat", "a plain chat is answered", (Fault.NO_CHAT,), chat)
TOOLS = Probe("tools", "tools may be offered", (Fault.TOOLS_REFUSED,), tools)
PROBES = (CHAT, TOOLS)
