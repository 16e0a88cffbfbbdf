"""What every kind of upstream can be asked, and what several of them share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from edgewise.gateway.asking import Ask
from edgewise.gateway.profile import Api, Fault, Kind, ModelCard


@dataclass(frozen=True, slots=True)
class Facts:
    """What changes only with an upstream's version or flags.

    `fields`: per API the only request fields taken. `slots`: requests answered at once, if it says so. `warnings`: what could not be
    learned and is assumed instead.
    """

    version: str = ""
    apis: frozenset[Api] = frozenset({Api.CHAT})
    fields: Mapping[Api, frozenset[str]] = field(default_factory=dict)
    slots: int | None = None
    warnings: tuple[str, ...] = ()


class UpstreamKind(Protocol):
    """How one kind is asked. Nothing here makes an upstream load, wake or generate anything."""

    @property
    def kind(self) -> Kind: ...

    @property
    def health_path(self) -> str:
        """Answered below 500 while requests can be."""
        ...

    def presumed_faults(self, version: str) -> frozenset[Fault]:
        """What is known to be wrong with this kind, until the doctor has seen this very upstream."""
        ...

    async def models(self, ask: Ask) -> tuple[ModelCard, ...] | None:
        """Its models, in its own order; None where it has no list."""
        ...

    async def facts(self, ask: Ask) -> Facts: ...


async def listed(ask: Ask) -> list[dict[str, Any]] | None:
    """The entries of /v1/models, None where there is no such list."""
    value = await ask.get_object("/v1/models")
    entries = value.get("data")
    if not isinstance(entries, list):
        return None
    return [one for one in entries if isinstance(one, dict) and isinstance(one.get("id"), str) and one["id"]]


def size_of(values: Mapping[str, Any], *names: str) -> int | None:
    """The first of these that is a positive whole number."""
    for name in names:
        value = values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def names_of(value: Any) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def apis_of(schema: Mapping[str, Any]) -> frozenset[Api]:
    """The APIs whose path an OpenAPI document lists with POST."""
    return frozenset(api for api in Api if "post" in _at(schema, "paths", api.value))


def fields_of(schema: Mapping[str, Any]) -> dict[Api, frozenset[str]]:
    """The allow-list of each API whose request is declared closed (additionalProperties false) in an OpenAPI document."""
    found = {}
    for api in Api:
        body = _request_schema(schema, api)
        if body.get("additionalProperties") is False and isinstance(body.get("properties"), dict):
            found[api] = frozenset(body["properties"])
    return found


def _request_schema(schema: Mapping[str, Any], api: Api) -> dict[str, Any]:
    request = _at(schema, "paths", api.value, "post", "requestBody")
    return _resolved(schema, _at(request, "content", "application/json", "schema"))


def _resolved(schema: Mapping[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """References inside the document followed, also where one is the only member of allOf. Bounded, since a document may be wrong."""
    for _ in range(8):
        members = body.get("allOf")
        if isinstance(members, list) and len(members) == 1 and isinstance(members[0], dict):
            body = members[0]
        reference = body.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        body = _at(schema, *_steps(reference))
    return body


def _steps(reference: str) -> Iterator[str]:
    return (step.replace("~1", "/").replace("~0", "~") for step in reference[2:].split("/"))


def _at(value: Any, *path: str) -> dict[str, Any]:
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, dict) else {}
