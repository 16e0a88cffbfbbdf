"""How many examples a property tries."""

from __future__ import annotations

import os


def examples(number: int) -> int:
    """`number`, or in the fast tier a tenth of it."""
    return max(5, number // 10) if os.environ.get("HYPOTHESIS_PROFILE") == "quick" else number
