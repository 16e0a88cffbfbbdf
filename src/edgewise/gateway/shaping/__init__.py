"""Requests and replies made to fit each other: named rules, applied only as an upstream's profile asks.

shape(body, api, profile, model=...) -> Shaped      a request's body as its upstream needs it
touches_reply(profile, api, body)                   whether a reply must be read, or may pass byte for byte
ReplyRepair(profile, chat)                          the repairs of one reply, on chat events
enforcement(body, api, profile)                     whether answers must be checked for a call, and how to ask again
"""

from __future__ import annotations

from edgewise.gateway.shaping.enforce import Enforcement, enforcement
from edgewise.gateway.shaping.reply import ReplyRepair, touches_reply
from edgewise.gateway.shaping.request import STEPS, Shaped, shape, sound_apis, touches_request

__all__ = [
    "STEPS",
    "Enforcement",
    "ReplyRepair",
    "Shaped",
    "enforcement",
    "shape",
    "sound_apis",
    "touches_reply",
    "touches_request",
]
