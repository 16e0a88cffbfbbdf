"""What a person says about a gateway: its upstreams in order of preference, and how names are treated. Data, and the TOML file it comes from.

default = "qwen"                 # who answers names that nobody has; the first upstream if absent
strict_model_names = false       # true: 404 for such names

[aliases]
claude-sonnet-4-5 = "qwen3-30b"  # any name -> a model's or an upstream's

[[upstream]]
name = "qwen"
url = "http://127.0.0.1:8081"
kind = "edge-llm"                # found out by asking if absent
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edgewise.core.errors import ConfigError
from edgewise.gateway.profile import Kind


@dataclass(frozen=True, slots=True)
class UpstreamConfig:
    """One upstream. `models`: what it serves, where it cannot list that itself.

    `weight`: its share among replicas of one model; 0: only while no other replica answers. `max_in_flight` None: as many as it says it
    takes at once, if it says so.
    """

    name: str
    url: str
    kind: Kind | None = None
    key: str | None = field(default=None, repr=False)
    weight: float = 1.0
    max_in_flight: int | None = None
    models: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """All of it. `default`: an upstream's name, None for the first. `engines`: names of upstreams that may come later. Times in seconds."""

    upstreams: tuple[UpstreamConfig, ...] = ()
    default: str | None = None
    strict_model_names: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    refresh_s: float = 10.0  # models are listed again this often
    health_s: float = 3.0
    ask_timeout_s: float = 5.0
    breaker_failures: int = 3  # in a row, until an upstream is left alone
    breaker_pause_s: float = 1.0  # doubled each time, up to 30 s
    engines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [one.name for one in self.upstreams]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"two upstreams are called {name!r}", hint="replicas need names of their own"
                )
        known = [*names, *self.engines]
        if self.default is not None and self.default not in known:
            raise ConfigError(
                f"default: there is no upstream {self.default!r}", hint=_near(self.default, known)
            )

    def replace(self, **changes: Any) -> GatewayConfig:
        return dataclasses.replace(self, **changes)


def read_config(path: Path, engines: tuple[str, ...] = ()) -> GatewayConfig:
    """The configuration in a TOML file. `engines`: names that `default` may have beside its upstreams'. Raises ConfigError naming the file and what is wrong in it."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    try:
        return config_of(values, folder=path.parent, engines=engines)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error


def config_of(values: Mapping[str, Any], *, folder: Path, engines: tuple[str, ...] = ()) -> GatewayConfig:
    """Decoded TOML -> configuration. `folder`: what a key_file's name is relative to."""
    table = dict(values)
    upstreams = table.pop("upstream", [])
    if not isinstance(upstreams, list) or not all(isinstance(one, dict) for one in upstreams):
        raise ConfigError("upstream must be a list of tables", hint="write [[upstream]] above each")
    made = tuple(_upstream_of(one, number, folder) for number, one in enumerate(upstreams, 1))
    return GatewayConfig(upstreams=made, engines=engines, **_checked(table, _GATEWAY_KEYS, ""))


def engine_of(text: str) -> UpstreamConfig:
    """`NAME=URL` or `NAME:KIND=URL`, as --engine has it."""
    left, equals, url = text.partition("=")
    name, colon, kind = left.partition(":")
    if not equals or not name or not url:
        raise ConfigError(f"{text!r} names no upstream", hint="NAME=URL, or NAME:KIND=URL")
    return UpstreamConfig(_name(name, "name"), _url(url, "url"), _kind(kind, "kind") if colon else None)


Check = Callable[[Any, str], Any]
"""A value and what it is called -> the value as it is kept. Raises ConfigError."""


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{what} must be text, got {value!r}")
    return value


def _name(value: Any, what: str) -> str:
    name = _text(value, what)
    if not name.isprintable() or any(character.isspace() or character in '=:/"' for character in name):
        raise ConfigError(f'{what} must be one word without = : / ", got {name!r}')
    return name


def _url(value: Any, what: str) -> str:
    """Without its /v1: the APIs' paths have that themselves."""
    url = _text(value, what)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{what} must be an http address, got {url!r}", hint="http://127.0.0.1:8000")
    if parts.query or parts.fragment or parts.username:
        raise ConfigError(f"{what} must be an address alone, got {url!r}", hint="a key goes into key_file")
    return url.rstrip("/").removesuffix("/v1")


def _kind(value: Any, what: str) -> Kind:
    kinds = [kind.value for kind in Kind]
    if value not in kinds:
        raise ConfigError(
            f"{what} must be one of {', '.join(kinds)}, got {value!r}", hint=_near(value, kinds)
        )
    return Kind(value)


def _flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{what} must be true or false, got {value!r}")
    return value


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ConfigError(f"{what} must be a number of at least 0, got {value!r}")
    return float(value)


def _seconds(value: Any, what: str) -> float:
    seconds = _number(value, what)
    if seconds < 0.05:
        raise ConfigError(f"{what} must be at least 0.05 s, got {value!r}")
    return seconds


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{what} must be a whole number of at least 1, got {value!r}")
    return value


def _texts(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ConfigError(f"{what} must be a list of texts, got {value!r}")
    return tuple(_text(one, f"{what}[{i}]") for i, one in enumerate(value))


def _text_table(value: Any, what: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ConfigError(f"{what} must be a table of texts, got {value!r}")
    return {name: _text(text, f"{what}.{name}") for name, text in value.items()}


_GATEWAY_KEYS: dict[str, Check] = {
    "default": _name,
    "strict_model_names": _flag,
    "aliases": _text_table,
    "refresh_s": _seconds,
    "health_s": _seconds,
    "ask_timeout_s": _seconds,
    "breaker_failures": _count,
    "breaker_pause_s": _seconds,
}
_UPSTREAM_KEYS: dict[str, Check] = {
    "name": _name,
    "url": _url,
    "kind": _kind,
    "key": _text,
    "key_file": _text,
    "weight": _number,
    "max_in_flight": _count,
    "models": _texts,
    "headers": _text_table,
}


def _checked(table: Mapping[str, Any], keys: Mapping[str, Check], prefix: str) -> dict[str, Any]:
    for name in table:
        if name not in keys:
            known = [*keys, "upstream"] if keys is _GATEWAY_KEYS else list(keys)
            raise ConfigError(f"there is no key {prefix + name!r}", hint=_near(name, known))
    return {name: keys[name](value, prefix + name) for name, value in table.items()}


def _upstream_of(table: Mapping[str, Any], number: int, folder: Path) -> UpstreamConfig:
    prefix = f"upstream[{number}]."
    values = _checked(table, _UPSTREAM_KEYS, prefix)
    for needed in ("name", "url"):
        if needed not in values:
            raise ConfigError(f"{prefix}{needed} is missing")
    key_file = values.pop("key_file", None)
    if key_file is not None:
        if "key" in values:
            raise ConfigError(f"{prefix}key and {prefix}key_file are both given")
        values["key"] = _key_in(folder / Path(key_file).expanduser(), f"{prefix}key_file")
    return UpstreamConfig(**values)


def _key_in(path: Path, what: str) -> str:
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what}: cannot read {path}: {error}") from error
    return _text(key, f"{what} {path}")


def _near(name: Any, known: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(str(name), list(known), n=1)
    return f"did you mean {found[0]!r}?" if found else None
