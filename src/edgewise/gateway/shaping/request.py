"""shape: a body as its upstream needs it, and no further. The rules are in the modules beside; here is their order."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from edgewise.gateway.profile import Api, Fault, Kind, Profile
from edgewise.gateway.shaping.choices import CHOICE_STEPS
from edgewise.gateway.shaping.fields import FIELD_STEPS
from edgewise.gateway.shaping.media import MEDIA_STEPS
from edgewise.gateway.shaping.messages import MESSAGES_STEPS
from edgewise.gateway.shaping.past_calls import CALL_STEPS
from edgewise.gateway.shaping.step import Body, Context, Step
from edgewise.gateway.shaping.structured import STRUCTURED_STEPS
from edgewise.gateway.shaping.thinking import THINKING_STEPS
from edgewise.gateway.shaping.turns import TURN_STEPS

STEPS: tuple[Step, ...] = (
    *MEDIA_STEPS,
    *TURN_STEPS,
    *CALL_STEPS,
    *MESSAGES_STEPS,
    *STRUCTURED_STEPS,
    *CHOICE_STEPS,
    *THINKING_STEPS,
    *FIELD_STEPS,  # last: what other rules wrote is filtered too
)
"""Every rule in the order it is applied."""


@dataclass(frozen=True, slots=True)
class Shaped:
    """A body as it is sent: the client's own object where no rule had anything to do.

    `applied`: the rules that changed something. `dropped`: dotted names of fields whose wish is lost with that.
    """

    body: Body
    applied: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def shape(body: Body, api: Api, profile: Profile, *, model: str) -> Shaped:
    """Apply every rule that the profile asks for. `model`: the name to send, "" to leave it as it is.

    Raises InvalidRequestError for what can be passed on in no form.
    """
    context = Context(profile, api, model)
    applied = []
    for step in _steps_for(profile.kind, profile.faults, profile.fields.get(api), api):
        changed = step.apply(body, context)
        if changed is not body:
            applied.append(step.name)
            body = changed
    return Shaped(body, tuple(applied), tuple(dict.fromkeys(context.dropped)))


@functools.lru_cache(256)
def _steps_for(
    kind: Kind, faults: frozenset[Fault], fields: frozenset[str] | None, api: Api
) -> tuple[Step, ...]:
    """The rules of an upstream: they depend on nothing else of its profile, and requests to one are many."""
    profile = Profile(kind, fields={} if fields is None else {api: fields}, faults=faults)
    return tuple(step for step in STEPS if step.wanted(profile, api))


def touches_request(profile: Profile, api: Api) -> bool:
    """Whether any rule looks at requests of this API to this upstream, beyond the model's name."""
    steps = _steps_for(profile.kind, profile.faults, profile.fields.get(api), api)
    return any(step.name != "model-name" for step in steps)


def sound_apis(profile: Profile) -> frozenset[Api]:
    """The APIs of a profile in which its upstream is to be asked: not those in which no shaping could undo a fault.

    Edge-LLM hands the input of Anthropic's calls to the template as text, whatever form it came in, and llama-server's responses have events that
    clients of that API cannot place: both are asked in chats instead. Counts that are wrong are asked as answers of one token.
    """
    faults = profile.faults
    unsound: set[Api] = set()
    if Api.CHAT in profile.apis:
        if profile.kind is Kind.EDGE_LLM and Fault.STRING_ARGUMENTS in faults:
            unsound |= {Api.MESSAGES, Api.COUNT_TOKENS}
        if Fault.MESSAGE_EVENTS in faults:
            unsound.add(Api.MESSAGES)
        if Fault.RESPONSE_EVENTS in faults:
            unsound.add(Api.RESPONSES)
    if Fault.COUNT_TOKENS in faults and not {Api.CHAT, Api.MESSAGES}.isdisjoint(profile.apis):
        unsound.add(Api.COUNT_TOKENS)
    return profile.apis - unsound
