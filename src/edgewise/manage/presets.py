"""llama-server's presets: an INI file with a section for each model of a router, `[*]` for what all share. Read, and written.

Keys are flags without their dashes, or the names of their environment variables. Source: llama.cpp, tools/server/README.md, "Using presets".
"""

from __future__ import annotations

import configparser
import io
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


def presets_text(presets: Presets) -> str:
    """The file's text: the shared section first, then what each model adds to it."""
    parser = configparser.RawConfigParser(interpolation=None, default_section="", delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    if presets.shared:
        parser[SHARED] = presets.shared
    for one in presets.models:
        parser[one.name] = {
            key: value for key, value in one.values.items() if presets.shared.get(key) != value
        }
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()
