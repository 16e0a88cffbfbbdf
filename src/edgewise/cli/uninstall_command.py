"""`edgewise uninstall`: take back what `edgewise install` did."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from edgewise.cli.common import store_settings
from edgewise.cli.engine_parts import control
from edgewise.cli.install_command import systemd
from edgewise.core.errors import ConfigError


def command(
    purge: Annotated[bool, typer.Option("--purge", help="remove models, keys, engines' settings and logs too")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask before that")] = False,
) -> None:  # fmt: skip
    """Ends the gateway and its engines and removes their unit. Models, keys and the list of engines stay."""
    if purge:
        _agree(yes=yes)
    if systemd().uninstall():
        print(
            "the gateway is no longer a service" + ("" if purge else "; models, keys and engines were kept")
        )
    else:
        print("nothing was installed")
    if purge:
        _purge()


def _agree(*, yes: bool) -> None:
    """Raises ConfigError for a no."""
    from edgewise.manage.purge import kept_bytes

    settings = store_settings()
    size = kept_bytes(settings) / 1e9
    print(f"{settings.data_dir}: {size:.1f} GB of models, built engines, keys, settings and logs")
    if not yes and not (sys.stdin.isatty() and typer.confirm("Remove all of it for good?")):
        raise ConfigError("nothing was removed", hint="--yes removes it without asking")


def _purge() -> None:
    """Raises ConfigError while a gateway still uses what is to be removed, one that systemd did not start."""
    from edgewise.gateway.supervision.client import NoGatewayError
    from edgewise.manage.purge import purge

    try:
        pid = control().ask("ps")["pid"]
    except NoGatewayError:
        purge(store_settings())
        print("models, keys, engines' settings and logs were removed")
    else:
        raise ConfigError(
            f"a gateway still runs as process {pid}; nothing was purged", hint="stop it, and say it again"
        )
