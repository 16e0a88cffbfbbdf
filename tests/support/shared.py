"""The data folder that may lie beside the checkout: vocabularies, templates, dialects. Tests that read it skip where it is absent."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2].parent / "shared"


def shared_data(name: str) -> Path:
    """A folder or file below the shared data; skips the calling test, saying so, when it is not there."""
    path = SHARED / "data" / name
    if not path.exists():
        pytest.skip(f"the data folder {path} is not on this machine")
    return path
