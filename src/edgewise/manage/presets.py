"""llama-server's presets: an INI file with a section for each model of a router, `[*]` for what all share. Read, and written.

Keys are flags without their dashes, or the names of their environment variables. Source: llama.cpp, tools/server/README.md, "Using presets".
"""

from __future__ import annotations

import configparser
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgewise.core.errors import ConfigError

SHARED = "*"
_ALIASES = {
    "model": ("model", "m", "llama_arg_model"),
    "ctx-size": ("ctx-size", "c", "llama_arg_ctx_size"),
    "parallel": ("parallel", "np", "llama_arg_n_parallel"),
    "load-on-startup": ("load-on-startup",),
    "alias": ("alias", "a"),
}


@dataclass(frozen=True, slots=True)
class Preset:
    """A model of a router. `values`: every key as written, with the shared ones under it. `context`: tokens of all slots together."""

    name: str
    values: Mapping[str, str]
    model: str | None = None
    context: int | None = None
    users: int | None = None
    load_on_startup: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Presets:
    models: tuple[Preset, ...]
    shared: Mapping[str, str] = field(default_factory=dict)


def read_presets(path: Path) -> Presets:
    """Raises ConfigError naming the file and what is wrong in it."""
    parser = configparser.RawConfigParser(
        interpolation=None, strict=True, default_section="", delimiters=("=",)
    )
    parser.optionxform = str.lower  # type: ignore[assignment,method-assign]
    try:
        text = path.read_text(encoding="utf-8")
        # keys before the first section, such as `version = 1`, belong to the file
        parser.read_string(text if text.lstrip().startswith("[") else f"[{_HEAD}]\n{text}", source=str(path))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (configparser.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no presets file: {str(error).splitlines()[0]}") from error
    sections = {name: dict(parser.items(name)) for name in parser.sections() if name != _HEAD}
    shared = sections.pop(SHARED, {})
    return Presets(tuple(_preset(path, name, {**shared, **own}) for name, own in sections.items()), shared)


_HEAD = "\0head"


def _preset(path: Path, name: str, values: dict[str, str]) -> Preset:
    said = {
        key: next((values[one] for one in names if one in values), None) for key, names in _ALIASES.items()
    }
    model = said["model"]
    if model is not None and not Path(model).expanduser().is_absolute():
        model = str(path.parent / model)
    return Preset(
        name=name,
        values=values,
        model=model,
        context=_number(path, name, "ctx-size", said["ctx-size"]),
        users=_number(path, name, "parallel", said["parallel"]),
        load_on_startup=(said["load-on-startup"] or "").lower() in ("true", "1", "yes", "on"),
        aliases=tuple(part.strip() for part in (said["alias"] or "").split(",") if part.strip()),
    )


def _number(path: Path, name: str, key: str, text: str | None) -> int | None:
    """0 and -1 mean the server's own choice."""
    try:
        value = int(text) if text is not None else 0
    except ValueError:
        raise ConfigError(f"{path}: [{name}] {key} must be a whole number, got {text!r}") from None
    return value if value > 0 else None


def preset_of(path: Path, model: str) -> Preset:
    """By its section, or an alias. Raises ConfigError for a model that the file does not have."""
    models = read_presets(path).models
    found = next((one for one in models if one.name == model), None)
    found = found or next((one for one in models if model in one.aliases), None)
    if found is None:
        raise ConfigError(
            f"{path} has no model {model!r}", hint=f"it has {', '.join(one.name for one in models) or 'none'}"
        )
    return found


def replaced(preset: Preset, context: int, users: int) -> Preset:
    """The same model with conversations of `context` tokens, `users` at once."""
    written = {"ctx-size": str(context * users), "parallel": str(users)}
    others = {name for key in written for name in _ALIASES[key]}
    kept = {key: value for key, value in preset.values.items() if key not in others}
    return dataclasses.replace(preset, values={**kept, **written}, context=context * users, users=users)


def presets_with(text: str, preset: Preset) -> str:
    """The file's text with what `preset` says of context and users in its own section; all else stays as it was written."""
    left = {key: preset.values[key] for key in ("ctx-size", "parallel") if key in preset.values}
    ours = {name: key for key in left for name in _ALIASES[key]}
    lines: list[str] = []
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip()[1:].partition("]")[0]
            lines.append(line)
            lines += [f"{key} = {value}" for key, value in left.items() if section == preset.name]
        elif section != preset.name or line.partition("=")[0].strip().lower() not in ours:
            lines.append(line)
    return "\n".join(lines) + "\n"
