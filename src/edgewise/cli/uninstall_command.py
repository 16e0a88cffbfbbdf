"""`edgewise uninstall`: take back what `edgewise install` did."""

from __future__ import annotations

from edgewise.cli.install_command import systemd


def command() -> None:
    """Ends the gateway and its engines and removes their unit. Models, keys and the list of engines stay."""
    if systemd().uninstall():
        print("the gateway is no longer a service; models, keys and engines' settings were kept")
    else:
        print("nothing was installed")
