"""Where the benchmarks find things. Environment variables are read by the caller, not here."""

from __future__ import annotations

from pathlib import Path


def default_peers_dir(cache_home: Path | None = None) -> Path:
    """The folder that `make peers` fills: one virtual environment a peer."""
    return (cache_home or Path.home() / ".cache") / "edgewise" / "peers"
