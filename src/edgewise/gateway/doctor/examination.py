"""The whole examination: what a server tells of itself, then every probe, then the profile that comes of it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import httpx

from edgewise.core.errors import ConfigError, UpstreamError
from edgewise.gateway.config import GatewayConfig, UpstreamConfig
from edgewise.gateway.doctor import answers, apis, basics, history, manners, requests
from edgewise.gateway.doctor.patient import SILENCE_S, Patient
from edgewise.gateway.doctor.probe import Finding, Probe, Verdict, not_measured
from edgewise.gateway.fleet import Fleet
from edgewise.gateway.profile import ModelCard, Profile
from edgewise.gateway.shaping.request import sound_apis
from edgewise.gateway.transport import HttpTransport

PROBES: tuple[Probe, ...] = (
    *basics.PROBES,
    *history.PROBES,
    *requests.PROBES,
    *answers.PROBES,
    *apis.PROBES,
    *manners.PROBES,
)


_LATE = not_measured("no answer in time")
_MAX_LATE = 2
_FAILED = "the connection failed"


@dataclass(frozen=True, slots=True)
class Row:
    """One probe's outcome."""

    probe: Probe
    finding: Finding

    @property
    def verdict(self) -> Verdict:
        return self.finding.verdict


@dataclass(frozen=True, slots=True)
class Report:
    """`profile`: what the gateway loads; its faults are those found, and of probes that could not measure those presumed of its kind."""

    url: str
    model: str
    profile: Profile
    rows: tuple[Row, ...]
    num_requests: int
    took_s: float

    @property
    def broken(self) -> bool:
        return any(row.verdict is Verdict.BROKEN for row in self.rows)

    @property
    def shaped(self) -> bool:
        return any(row.verdict is Verdict.SHAPED for row in self.rows)


async def examine(
    url: str,
    *,
    key: str | None = None,
    model: str | None = None,
    only: Sequence[str] = (),
    timeout_s: float = 60.0,
    silence_s: float = SILENCE_S,
    progress: Callable[[Row], None] | None = None,
) -> Report:
    """Ask a server everything. `only`: names of probes. `silence_s`: a stream should not be silent for longer. `progress` gets each row as
    it is found.

    Raises ConfigError for a probe that is none, UpstreamError where nobody answers.
    """
    chosen = _chosen(only)
    url = url.rstrip("/").removesuffix("/v1")
    began = time.monotonic()
    learned = await _learn(url, key)
    card = _card(learned, model)
    rows: list[Row] = []
    async with Patient(
        url,
        key=key,
        model=card.id,
        window=card.max_input or card.window,
        timeout_s=timeout_s,
        silence_s=silence_s,
    ) as patient:
        async for row in _rows(chosen, patient):
            rows.append(row)
            if progress is not None:
                progress(row)
        took_s = time.monotonic() - began
        return Report(url, card.id, _profile(learned, rows), tuple(rows), patient.num_requests, took_s)


def _chosen(only: Sequence[str]) -> tuple[Probe, ...]:
    known = {probe.name: probe for probe in PROBES}
    for name in only:
        if name not in known:
            raise ConfigError(f"there is no probe {name!r}", hint=f"there are: {', '.join(known)}")
    return tuple(probe for probe in PROBES if not only or probe.name in only)


async def _rows(chosen: Sequence[Probe], patient: Patient) -> AsyncIterator[Row]:
    """Each probe's row. What others rest on is asked in any case, and shown if it is wanted or wrong."""
    stopped = no_tools = ""
    num_late = 0
    for probe in PROBES:
        basic = probe is basics.CHAT or (probe is basics.TOOLS and any(one.with_tools for one in chosen))
        if probe not in chosen and not basic:
            continue
        if stopped or (no_tools and probe.with_tools):
            finding = not_measured(stopped or no_tools)
        else:
            finding = await _run(probe, patient)
            num_late += finding is _LATE
            if num_late >= _MAX_LATE:
                stopped = f"not asked: {num_late} requests before it were not answered in time"
            elif probe is not basics.CHAT and _is_grave(finding) and not await _still_there(patient):
                stopped = "the server stopped answering"
                finding = not_measured(stopped)
        bad = finding.verdict is Verdict.BROKEN
        if probe is basics.CHAT and bad:
            stopped = "a plain chat is not answered"
        if probe is basics.TOOLS and bad:
            no_tools = "requests with tools are refused"
        if probe in chosen or bad:
            yield Row(probe, finding)


async def _learn(url: str, key: str | None) -> Profile:
    """What the server tells of itself. Raises UpstreamError where it does not answer."""
    transport = HttpTransport()
    fleet = Fleet(GatewayConfig(upstreams=(UpstreamConfig("patient", url, key=key),)), transport)
    try:
        await fleet.start()
        (upstream,) = fleet.upstreams
        if not upstream.answers:
            raise UpstreamError(f"{url} does not answer")
        return upstream.profile
    finally:
        await fleet.stop()
        await transport.aclose()


def _card(profile: Profile, model: str | None) -> ModelCard:
    """The model to ask: the one named, else the first that is loaded."""
    loaded = [card for card in profile.models if card.loaded]
    if model is not None:
        return next((card for card in loaded if model in (card.id, *card.aliases)), ModelCard(model))
    if not loaded:
        raise UpstreamError("the server lists no model that is loaded; name one with --model")
    return loaded[0]


def _is_grave(finding: Finding) -> bool:
    return bool(finding.faults) or finding.note.startswith(_FAILED)


async def _still_there(patient: Patient) -> bool:
    """Whether a plain chat is answered: what a server says that is about to end, or has, is no fault of its own."""
    finding = await _run(basics.CHAT, patient)
    return finding is _LATE or (finding.measured and not finding.faults)


async def _run(probe: Probe, patient: Patient) -> Finding:
    """What a probe finds; asked again once where the server closed a connection that it had kept."""
    try:
        try:
            return await probe.run(patient)
        except httpx.RemoteProtocolError:
            return await probe.run(patient)
    except httpx.TimeoutException:
        return _LATE
    except httpx.HTTPError as error:
        return not_measured(f"{_FAILED}: {error or type(error).__name__}")


def _profile(learned: Profile, rows: Sequence[Row]) -> Profile:
    asked = {fault for row in rows if row.finding.measured for fault in row.probe.looks_for}
    seen = {fault for row in rows for fault in row.finding.faults}
    profile = learned.replace(faults=frozenset((learned.faults - asked) | seen))
    return profile.replace(apis=sound_apis(profile))
