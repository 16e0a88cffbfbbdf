"""The settings of thor-tigress-serve, which Edgewise takes the place of: KEY=value lines, read into engines and the gateway's flags.

Every name is either taken or named with the reason why it is not.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from edgewise.core.engines import EngineKind, EngineSpec
from edgewise.core.errors import ConfigError
from edgewise.manage.engines import unused_name
from edgewise.manage.launch import is_router
from edgewise.manage.presets import read_presets

NOT_TAKEN = {
    "AGENT": "the gateway takes its place",
    "KEYRING": "keys are kept in the state file: edgewise key create NAME",
    "KEYRING_BIN": "keys are kept in the state file: edgewise key create NAME",
    "KEYRING_PASSPHRASE": "keys are kept in the state file: edgewise key create NAME",
}
_LLAMA = ("MODEL", "USERS", "CONTEXT", "MODELS_MAX", "MODEL_PORT", "SERVER")
_EDGE = ("EDGE_MODEL", "EDGE_PORT", "EDGE_CONTEXT", "EDGE_MODELS", "EDGE_SERVER")
_GATEWAY = ("PORT", "MIN_FREE_GB", "SEARCH_PORT", "AGENT_DEFAULT")
_KNOWN = frozenset((*_LLAMA, *_EDGE, *_GATEWAY))
_DEFAULTS = {
    **{"USERS": "4", "CONTEXT": "1048576", "MODELS_MAX": "2", "MODEL_PORT": "8079"},
    **{"EDGE_PORT": "8081", "EDGE_CONTEXT": "32768", "MIN_FREE_GB": "8", "SEARCH_PORT": "8888"},
}
"""What ran where the file said nothing; it goes on like that."""

_OLD_NAMES = ("nemotron", "nemotron-think")
"""What requests could call the model of llama-server, whatever it was."""


@dataclass(frozen=True, slots=True)
class OldSettings:
    """What came of the file: engines in order of preference, flags of `edgewise gateway`, and a line for each name not taken."""

    engines: tuple[EngineSpec, ...] = ()
    flags: tuple[tuple[str, str], ...] = ()
    not_taken: tuple[str, ...] = ()


def read_old_settings(
    path: Path, environ: Mapping[str, str] | None = None, presets: Path | None = None
) -> OldSettings:
    """`environ` wins over the file. `presets`: llama-server then runs as a router with them. Raises ConfigError."""
    said = {**_lines(path), **{key: value for key, value in (environ or {}).items() if key in _KNOWN}}
    values = {**_DEFAULTS, **{key: value for key, value in said.items() if value}}
    edge, llama = _edge_engines(values, path), _llama_engines(values, presets, path)
    first, second = (edge, llama) if values.get("AGENT_DEFAULT") == "edge" else (llama, edge)
    names: list[str] = []
    engines = []
    for spec in (*first, *second):
        names.append(unused_name(spec.name, names))
        engines.append(replace(spec, name=names[-1]))
    flags = _flags(values, next((one for one in engines if one.kind is EngineKind.LLAMA), None))
    return OldSettings(tuple(engines), tuple(flags), tuple(_not_taken(said, presets)))


def _flags(values: Mapping[str, str], llama: EngineSpec | None) -> Iterator[tuple[str, str]]:
    if "PORT" in values:
        yield "--port", values["PORT"]
    yield "--keep-free-gb", values["MIN_FREE_GB"]
    yield "--search-url", f"http://127.0.0.1:{values['SEARCH_PORT']}"
    if llama is not None and not is_router(llama):
        yield from (("--alias", f"{name}={llama.name}") for name in (*_OLD_NAMES, llama.model))


def _not_taken(said: Mapping[str, str], presets: Path | None) -> Iterator[str]:
    """Every name of the file that nothing came of, and why."""
    for name, value in said.items():
        why = NOT_TAKEN.get(name) or _why_not(name, value, said, presets)
        if why:
            yield f"{name}: {why}"


def _why_not(name: str, value: str, said: Mapping[str, str], presets: Path | None) -> str | None:
    if name not in _KNOWN:
        return "not a setting that is known"
    if not value:
        return "it is empty"
    if name in _EDGE or (name, value) == ("AGENT_DEFAULT", "edge"):
        return None if said.get("EDGE_MODEL") else "there is no EDGE_MODEL that it could be for"
    if name == "AGENT_DEFAULT":
        return f"{value!r} is not edge, so llama-server stays first"
    if name in ("MODEL", "USERS", "CONTEXT") and presets is not None:
        return "the presets say what the router runs"
    if name in _LLAMA and presets is None and not said.get("MODEL"):
        return "there is no MODEL that it could be for"
    if name == "MODELS_MAX" and presets is None:
        return "without presets llama-server runs one model"
    return None


def _edge_engines(values: Mapping[str, str], path: Path) -> list[EngineSpec]:
    """EDGE_MODEL, and those of EDGE_MODELS: FOLDER=PORT, a folder alone lies beside that of EDGE_MODEL."""
    if not (main := values.get("EDGE_MODEL")):
        return []
    context = _number(values, "EDGE_CONTEXT", path)
    program = values.get("EDGE_SERVER")
    folder = Path(main).expanduser()
    wanted = [(folder, _number(values, "EDGE_PORT", path))]
    for pair in values.get("EDGE_MODELS", "").replace(",", " ").split():
        name, _, port = pair.rpartition("=")
        if not name or not port.isdigit():
            raise ConfigError(f"{path}: EDGE_MODELS: {pair!r} is not FOLDER=PORT")
        wanted.append((folder.parent / Path(name).expanduser(), int(port)))
    return [
        EngineSpec(
            name=one.name,
            kind=EngineKind.EDGE_LLM,
            model=str(one),
            port=port,
            context=context,
            program=program,
            wanted=True,
        )
        for one, port in wanted
    ]


def _llama_engines(values: Mapping[str, str], presets: Path | None, path: Path) -> list[EngineSpec]:
    """One model, or a router of those that the presets name."""
    port, program = _number(values, "MODEL_PORT", path), values.get("SERVER")
    if presets is not None:
        read_presets(presets)  # what is wrong with them is said now
        most = str(_number(values, "MODELS_MAX", path))
        return [
            EngineSpec(
                name="llama",
                kind=EngineKind.LLAMA,
                model=str(presets.resolve()),
                port=port,
                args=("--models-max", most),
                program=program,
                wanted=True,
            )
        ]
    if not (model := values.get("MODEL")):
        return []
    return [
        EngineSpec(
            name=Path(model).name.removesuffix(".gguf"),
            kind=EngineKind.LLAMA,
            model=str(Path(model).expanduser()),
            port=port,
            context=_number(values, "CONTEXT", path),
            users=_number(values, "USERS", path),
            program=program,
            wanted=True,
        )
    ]


def _number(values: Mapping[str, str], name: str, path: Path) -> int:
    text = values[name]
    if not text.isdigit() or not int(text):
        raise ConfigError(f"{path}: {name} must be a whole number from 1, got {text!r}")
    return int(text)


def _lines(path: Path) -> dict[str, str]:
    """KEY=value as a shell reads it: quotes, comments, `export`. Nothing is expanded."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    values = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from error
        words = words[1:] if words[:1] == ["export"] else words
        for word in words:
            name, equals, value = word.partition("=")
            if not equals or not name.isidentifier():
                raise ConfigError(f"{path}, line {number}: {word!r} is not KEY=value")
            values[name] = value
    return values
