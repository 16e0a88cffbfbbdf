"""`edgewise unload NAME`: have the gateway stop an engine, or a router unload one of its models."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from edgewise.cli.engine_parts import control, engine_list, follow
from edgewise.core.errors import ConfigError


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="an engine of `edgewise ps`, or ROUTER/MODEL", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="also the engine that answers by default")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="take it off the list as well")] = False,
) -> None:  # fmt: skip
    """Stop an engine. The gateway does not start it again until it is loaded."""
    now = control().ask("ps")
    loaded = any(row["name"] == name and row["state"] != "stopped" for row in now["engines"])
    if loaded and name == now["default"] and not yes and not _agreed(name):
        raise ConfigError(f"{name} stays", hint="--yes unloads it all the same")
    if loaded or not forget:
        follow("unload", name)
    if forget:
        with engine_list() as engines:
            engines.remove(name)


def _agreed(name: str) -> bool:
    """Asked of a person; a program has to say so."""
    question = f"{name} answers requests that name no other model. Unload it?"
    return sys.stdin.isatty() and typer.confirm(question)
