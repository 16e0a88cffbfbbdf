"""Clients from npm, installed once into a folder of their own and kept there.

`EDGEWISE_CLIENTS_DIR` names the folder; without it, it is `edgewise/clients` in the user's cache.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

INSTALL_TIMEOUT_S = 240


def clients_dir() -> Path:
    chosen = os.environ.get("EDGEWISE_CLIENTS_DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(chosen) if chosen else cache / "edgewise" / "clients"


@functools.cache
def installed(package: str, version: str, command: str, *, path: str = "") -> Path:
    """The path of a package's command. Skips the calling test, saying why, where it cannot be had.

    `path`: where programs are looked for while it is installed, other than this process does.
    """
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip(f"{package} needs node and npm, which are not on this machine")
    home = clients_dir() / f"{package.replace('/', '_')}@{version}"
    found = home / "node_modules" / ".bin" / command
    if not found.exists():
        _install(f"{package}@{version}", home, path)
    assert found.exists(), f"{package} has no command {command}"
    return found


def _install(what: str, home: Path, path: str) -> None:
    """Into a folder beside it first, so that a broken download leaves nothing that looks whole."""
    fresh = home.with_name(f"{home.name}.{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    npm = ["npm", "install", "--no-fund", "--no-audit", "--prefix", str(fresh), what]
    try:
        run = subprocess.run(
            npm,
            env={**os.environ, **({"PATH": path} if path else {})},
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
        reason = run.stderr.strip()[-300:] if run.returncode else ""
    except subprocess.TimeoutExpired:
        reason = f"not done after {INSTALL_TIMEOUT_S} s"
    if reason:
        shutil.rmtree(fresh, ignore_errors=True)
        pytest.skip(f"npm cannot install {what} here: {reason}")
    if home.exists():  # another run was faster
        shutil.rmtree(fresh)
    else:
        fresh.rename(home)
