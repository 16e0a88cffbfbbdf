"""The settings of thor-tigress-serve, which Edgewise takes the place of: KEY=value lines, read into engines and the gateway's flags.

Every name is either taken or named with the reason why it is not.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgewise.core.engines import EngineKind, EngineSpec
from edgewise.core.errors import ConfigError

NOT_TAKEN = {
    "AGENT": "the gateway takes its place",
    "KEYRING": "keys are kept in the state file: edgewise key create NAME",
    "KEYRING_BIN": "keys are kept in the state file: edgewise key create NAME",
    "KEYRING_PASSPHRASE": "keys are kept in the state file: edgewise key create NAME",
}
_FLAGS = {"PORT": "--port", "MIN_FREE_GB": "--keep-free-gb", "SEARCH_PORT": "--search-url"}
_LLAMA = ("AGENT_DEFAULT", "MODEL", "USERS", "CONTEXT", "MODELS_MAX", "MODEL_PORT", "SERVER")
_EDGE = ("EDGE_MODEL", "EDGE_PORT", "EDGE_CONTEXT", "EDGE_MODELS", "EDGE_SERVER")
_KNOWN = frozenset((*_FLAGS, *_LLAMA, *_EDGE))


@dataclass(frozen=True, slots=True)
class OldSettings:
    """What came of the file: engines in order of preference, flags of `edgewise gateway`, and a line for each name not taken."""

    engines: tuple[EngineSpec, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    not_taken: tuple[str, ...] = ()


def read_old_settings(
    path: Path, environ: Mapping[str, str] | None = None, presets: Path | None = None
) -> OldSettings:
    """`environ` wins over the file. `presets`: llama-server then runs as a router with them. Raises ConfigError."""
    values = {**_lines(path), **{key: value for key, value in (environ or {}).items() if key in _KNOWN}}
    edge, llama = _edge_engines(values, path), _llama_engines(values, presets, path)
    engines = (*edge, *llama) if values.get("AGENT_DEFAULT") == "edge" else (*llama, *edge)
    flags = {flag: values[name] for name, flag in _FLAGS.items() if values.get(name)}
    if "--search-url" in flags:
        flags["--search-url"] = f"http://127.0.0.1:{flags['--search-url']}"
    return OldSettings(engines, flags, tuple(_not_taken(values, presets)))


def _not_taken(values: Mapping[str, str], presets: Path | None) -> list[str]:
    lines = [f"{name}: {why}" for name, why in NOT_TAKEN.items() if name in values]
    if "MODELS_MAX" in values and presets is None:
        lines.append("MODELS_MAX: without presets llama-server runs one model")
    if values.get("AGENT_DEFAULT", "edge") != "edge":
        lines.append(f"AGENT_DEFAULT: {values['AGENT_DEFAULT']!r} is not edge, so llama-server stays first")
    unknown = [name for name in values if name not in _KNOWN and name not in NOT_TAKEN]
    return lines + [f"{name}: not a setting that is known" for name in unknown]


def _edge_engines(values: Mapping[str, str], path: Path) -> list[EngineSpec]:
    """EDGE_MODEL, and those of EDGE_MODELS: FOLDER=PORT, a folder alone lies beside that of EDGE_MODEL."""
    if not (main := values.get("EDGE_MODEL")):
        return []
    context = _number(values, "EDGE_CONTEXT", path)
    program = values.get("EDGE_SERVER") or None
    folder = Path(main).expanduser()
    wanted = [(folder, _number(values, "EDGE_PORT", path) or 8081)]
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
    model = str(presets.resolve()) if presets else values.get("MODEL", "")
    if not model:
        return []
    router = presets is not None
    most = values.get("MODELS_MAX")
    return [
        EngineSpec(
            name="llama" if router else Path(model).name.removesuffix(".gguf"),
            kind=EngineKind.LLAMA,
            model=model,
            port=_number(values, "MODEL_PORT", path) or 8079,
            context=None if router else _number(values, "CONTEXT", path),
            users=1 if router else _number(values, "USERS", path) or 1,
            args=("--models-max", most) if router and most else (),
            program=values.get("SERVER") or None,
            wanted=True,
        )
    ]


def _number(values: Mapping[str, str], name: str, path: Path) -> int | None:
    text = values.get(name, "")
    if text and not text.isdigit():
        raise ConfigError(f"{path}: {name} must be a whole number, got {text!r}")
    return int(text) if text else None


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
