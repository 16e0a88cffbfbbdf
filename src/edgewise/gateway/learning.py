"""Learning what an upstream is, and whether it answers: asked at the start, and then again and again. Event loop only.

Liveness is asked often. Models are listed again every `refresh_s`, when somebody names one that is not known, and when an upstream comes
back. Version, APIs and allow-lists are read at the start, when it comes back, and every few minutes; what changed in them is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from edgewise.gateway.asking import Ask
from edgewise.gateway.config import GatewayConfig
from edgewise.gateway.kinds import Facts, detect, kind_of
from edgewise.gateway.parts import BrokenReplyError, NotBegunError, Transport
from edgewise.gateway.profile import Api, Kind, ModelCard, Profile
from edgewise.gateway.shaping.request import sound_apis
from edgewise.gateway.transport import SilentError
from edgewise.gateway.upstream import Upstream

logger = logging.getLogger("edgewise.gateway")

_FACTS_S = 300.0
_MISSES = 2  # unanswered questions in a row, until an upstream that takes connections counts as down


class ProfileStore(Protocol):
    """Where the doctor's findings are kept, per upstream and version."""

    def load(self, name: str, version: str, /) -> Profile | None: ...


class NoProfiles:
    """Nothing has been examined."""

    def load(self, name: str, version: str, /) -> Profile | None:
        return None


@dataclass(slots=True)
class _Known:
    """What is remembered of one upstream between questions. Times by the loop's clock."""

    kind: Kind | None = None
    sure: bool = False  # that it is of that kind
    facts: Facts | None = None
    facts_s: float = 0.0
    models_s: float = 0.0
    num_missed: int = 0


class Learner:
    """Asks; writes the answers into the upstreams."""

    def __init__(self, transport: Transport, config: GatewayConfig, profiles: ProfileStore) -> None:
        self.config = config
        self._transport = transport
        self._profiles = profiles
        self._known: dict[Upstream, _Known] = {}

    def forget(self, upstream: Upstream) -> None:
        self._known.pop(upstream, None)

    async def look(self, upstream: Upstream, *, wanted: bool = False) -> None:
        """Ask whether it answers, and what is due. `wanted`: its models, in any case. Never raises for what an upstream does."""
        known = self._known.setdefault(upstream, _Known(kind=upstream.config.kind))
        ask = Ask(self._transport, upstream, timeout_s=self.config.ask_timeout_s)
        try:
            await self._look(upstream, known, ask, wanted)
        except (NotBegunError, BrokenReplyError) as error:
            known.num_missed += 1
            patient = isinstance(error, SilentError) and upstream.answers and known.num_missed < _MISSES
            if not patient:
                self._down(upstream, error.message)

    async def _look(self, upstream: Upstream, known: _Known, ask: Ask, wanted: bool) -> None:
        returned = not upstream.answers
        if upstream.config.kind is None and (returned or not known.sure):
            await self._detect(upstream, known, ask)
        assert known.kind is not None
        kind = kind_of(known.kind)
        status = await ask.status(kind.health_path)
        known.num_missed = 0
        if status >= 500:
            self._down(upstream, f"{kind.health_path} answers {status}")
            return
        now_s = asyncio.get_running_loop().time()
        if returned or known.facts is None or now_s - known.facts_s >= _FACTS_S:
            facts = await kind.facts(ask)
            _tell_changes(upstream.name, known.facts, facts)
            known.facts, known.facts_s = facts, now_s
            wanted = True
        if wanted or now_s - known.models_s >= self.config.refresh_s:
            known.models_s = now_s
            self._learn(upstream, known.kind, known.facts, await kind.models(ask))
        self._up(upstream)

    async def _detect(self, upstream: Upstream, known: _Known, ask: Ask) -> None:
        """What it is may have changed while it was away, and cannot always be seen at the first look."""
        kind, known.sure = await detect(ask)
        if kind is not known.kind:
            logger.info("%s is of kind %s%s", upstream.name, kind.value, "" if known.sure else ", it seems")
            known.kind, known.facts = kind, None

    def _learn(
        self, upstream: Upstream, kind: Kind, facts: Facts, models: tuple[ModelCard, ...] | None
    ) -> None:
        examined = self._profiles.load(upstream.name, facts.version)
        faults = kind_of(kind).presumed_faults(facts.version) if examined is None else examined.faults
        stated = tuple(ModelCard(name) for name in upstream.config.models)
        cards = stated or models or ()
        profile = Profile(kind, facts.version, facts.apis, facts.fields, faults, cards)
        if not upstream.known or names_loaded(profile) != names_loaded(upstream.profile):
            logger.info("%s serves %s", upstream.name, ", ".join(names_loaded(profile)) or "no model")
        upstream.profile = profile.replace(apis=sound_apis(profile))
        upstream.slots = facts.slots
        upstream.known = True

    def _up(self, upstream: Upstream) -> None:
        if not upstream.answers:
            logger.info("%s answers", upstream.name)
            upstream.answers = True
            upstream.breaker.reset()
        upstream.trouble = "" if upstream.breaker.closed else "its latest requests failed"

    def _down(self, upstream: Upstream, reason: str) -> None:
        if upstream.answers or not upstream.trouble or upstream.trouble != reason:
            logger.warning("%s does not answer: %s", upstream.name, reason)
        upstream.answers = False
        upstream.trouble = reason


def names_loaded(profile: Profile) -> list[str]:
    return [card.id for card in profile.models if card.loaded]


def _tell_changes(name: str, before: Facts | None, after: Facts) -> None:
    """Say what is assumed, and what is not as it was: an allow-list that changed means that requests are cut differently."""
    for warning in after.warnings:
        if before is None or warning not in before.warnings:
            logger.warning("%s: %s", name, warning)
    if before is None:
        return
    if before.version != after.version:
        logger.warning("%s: version %s, before %s", name, after.version or "?", before.version or "?")
    for change in allow_list_changes(before.fields, after.fields):
        logger.warning("%s: %s", name, change)


def allow_list_changes(
    before: Mapping[Api, frozenset[str]], after: Mapping[Api, frozenset[str]]
) -> list[str]:
    """In words, API by API; empty where nothing changed."""
    changes = []
    for api in sorted({*before, *after}):
        old, new = before.get(api), after.get(api)
        if old == new:
            continue
        if old is None or new is None:
            changes.append(f"{api.value} now takes {'any field' if new is None else 'listed fields only'}")
            continue
        gone, added = sorted(old - new), sorted(new - old)
        parts = [f"no longer takes {', '.join(gone)}"] if gone else []
        parts += [f"now takes {', '.join(added)}"] if added else []
        changes.append(f"{api.value} {' and '.join(parts)}")
    return changes
