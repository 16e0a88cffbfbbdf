"""Structured output under the upstream's own name for it. What it has no word for is left out, and said to be.

`response_format` is everybody's; beside it vLLM reads `structured_outputs` and, in older versions, `guided_*`, Edge-LLM `guided_decoding`,
llama-server `grammar` and `json_schema`.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, assert_never

from edgewise.core.grammar import OutputFormat
from edgewise.gateway.profile import Api, Kind, Profile
from edgewise.gateway.shaping.step import Body, Context, Step, without
from edgewise.protocols.chat_client import encode_format
from edgewise.protocols.fields import Fields
from edgewise.protocols.structured import read_output_format

_GUIDED = ("guided_json", "guided_json_object", "guided_regex", "guided_choice", "guided_grammar")
_NAMES = frozenset(("structured_outputs", "guided_decoding", *_GUIDED, "grammar", "json_schema"))
_SCHEMAS = ("json_object", "json_schema")
_EDGE_LLM_WORDS = {"regex": "regex", "choice": "choice", "gbnf": "ebnf", "structural_tag": "structural_tag"}


def _own_words(kind: Kind) -> Collection[str]:
    match kind:
        case Kind.EDGE_LLM:
            return ("guided_decoding",)
        case Kind.VLLM:
            return ("structured_outputs", *_GUIDED)
        case Kind.LLAMA:
            return ("grammar", "json_schema")
        case Kind.OPENAI:
            return ()
        case Kind.EDGEWISE:
            return _NAMES
        case other:
            assert_never(other)


def _said(kind: Kind, output: OutputFormat) -> dict[str, Any] | None:
    """The fields that ask a kind of upstream for this; None where it has no word for it."""
    if output.kind in _SCHEMAS:
        return encode_format(output)
    match kind:
        case Kind.EDGE_LLM:
            word = _EDGE_LLM_WORDS.get(output.kind)
            value = list(output.value) if output.kind == "choice" else output.value
            return None if word is None else {"guided_decoding": {word: value}}
        case Kind.VLLM | Kind.EDGEWISE:
            return encode_format(output)
        case Kind.LLAMA:
            if output.kind == "choice":
                return {"grammar": "root ::= " + " | ".join(map(json.dumps, output.value))}
            return {"grammar": output.value} if output.kind == "gbnf" else None
        case Kind.OPENAI:
            return None
        case other:
            assert_never(other)


def _reword(body: Body, context: Context) -> Body:
    if _NAMES.isdisjoint(body):
        return body
    kind = context.profile.kind
    own = _own_words(kind)
    foreign = [
        name for name in body if name in _NAMES and name not in own and body[name] not in (None, "", [])
    ]
    if not foreign:
        return body
    output = read_output_format(Fields.of(body, ""))
    said = None if output is None else _said(kind, output)
    if said is None:
        context.dropped += foreign
    return {**without(body, *foreign), **(said or {})}


def _is_foreign(profile: Profile, api: Api) -> bool:
    return api is Api.CHAT and profile.kind is not Kind.EDGEWISE


STRUCTURED_STEPS = (Step("structured-output", _is_foreign, _reword),)
