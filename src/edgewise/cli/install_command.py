"""`edgewise install`: the gateway as a service of this person, now and after every boot."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgewise.cli.common import checked_search_url, store_settings
from edgewise.cli.engine_parts import control, engine_list
from edgewise.core.errors import ConfigError

if TYPE_CHECKING:
    from edgewise.manage.old_settings import OldSettings
    from edgewise.manage.units import Systemd

_KEPT = (
    *(
        "EDGEWISE_HOME",
        "EDGEWISE_CACHE_DIR",
        "EDGEWISE_ENGINE_CACHE",
        "EDGEWISE_OFFLINE",
        "EDGEWISE_FIND_LINKS",
    ),
    *("XDG_CACHE_HOME", "PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME"),
)
"""Of this shell's environment, what the gateway and its engines are to have too: where things are found."""


def command(
    host: Annotated[str, typer.Option(help="address the gateway listens on")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="its port", show_default="8080")] = None,
    config: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="its TOML file", show_default=False)] = None,
    keep_free_gb: Annotated[float | None, typer.Option(min=0.0, help="memory that must stay free when an engine is loaded, GB", show_default="a sixteenth")] = None,
    search_url: Annotated[str | None, typer.Option(help="a SearXNG for the page's web search", show_default=False)] = None,
    memory_max: Annotated[str | None, typer.Option(help="limit of the gateway and all its engines, such as 48G or 80%", show_default="none")] = None,
    old: Annotated[Path | None, typer.Option("--import", help="take over the settings of thor-tigress-serve", show_default=False)] = None,
    presets: Annotated[Path | None, typer.Option(help="with --import: llama-server's presets, run as a router", show_default=False)] = None,
) -> None:  # fmt: skip
    """Engines that run go on running where nothing about them changed. `edgewise uninstall` takes it back."""
    from edgewise.manage.units import Service

    if memory_max is not None and not re.fullmatch(r"\d+[KMGT]?|\d{1,2}%|100%", memory_max):
        raise ConfigError(f"--memory-max must be a size like 48G or 80%, got {memory_max!r}")
    flags: list[tuple[str, str]] = []
    if old is not None:
        flags = _taken_over(old, presets)
    elif presets is not None:
        raise ConfigError(
            "--presets goes with --import", hint=f"edgewise load {presets} makes a router of it"
        )
    given = {
        "--host": host,
        "--port": port,
        "--config": config and config.resolve(),
        "--keep-free-gb": keep_free_gb,
        "--search-url": checked_search_url(search_url),
    }
    said = {flag: str(value) for flag, value in given.items() if value is not None}
    flags = [*said.items(), *(pair for pair in flags if pair[0] not in said)]
    argv = [sys.executable, "-m", "edgewise.cli", "gateway", *(word for pair in flags for word in pair)]
    env = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
    anew = systemd().install(Service(tuple(argv), env, memory_max), before_restart=_leave_engines)
    if not anew:
        _apply()
    print(
        f"the gateway {'was started' if anew else 'runs as before'}: http://{host}:{dict(flags).get('--port', 8080)}"
    )


def systemd() -> Systemd:
    from edgewise.manage.units import Systemd

    config_home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Systemd(config_home / "systemd" / "user", getpass.getuser())


def _apply() -> None:
    """What was imported comes up in the gateway that runs."""
    from edgewise.gateway.supervision.client import NoGatewayError

    with contextlib.suppress(NoGatewayError):
        control().ask("apply")


def _leave_engines() -> None:
    """The gateway that runs is about to end: its engines are for the one that follows."""
    from edgewise.gateway.supervision.client import NoGatewayError

    with contextlib.suppress(NoGatewayError):
        control().ask("leave")


def _taken_over(old: Path, presets: Path | None) -> list[tuple[str, str]]:
    """Old engines become ours, unless there is one of that name already. What the gateway is told besides."""
    from edgewise.manage.old_settings import read_old_settings

    found: OldSettings = read_old_settings(old, os.environ, presets)
    with engine_list(store_settings()) as engines:
        there = set(engines.names())
        for spec in found.engines:
            if spec.name in there:
                print(f"{spec.name}: is an engine already, and stays as it is")
                continue
            try:
                engines.add(spec)
            except ConfigError as error:  # another engine has its port
                print(f"not taken: {spec.name}: {error.message}", file=sys.stderr)
                continue
            print(f"{spec.name}: {spec.kind.value}, {spec.model}")
    for line in found.not_taken:
        print(f"not taken: {line}", file=sys.stderr)
    return list(found.flags)
